"""What each of the lab's models is, what it was trained on and what it is for, as its card says it."""

from __future__ import annotations

ABOUT: dict[str, tuple[str, str, str]] = {
    # name: what it is, what it was trained on, what it is for
    "vqgan": (
        "A diffusers `VQModel`: 64×64 pictures to 16×16 codes and back.",
        "Scenes of the full distribution.",
        "The generator of the latent search (`lab:vqgan`).",
    ),
    "clip": (
        "A transformers `CLIPModel` with its tokenizer and image processor.",
        "Scenes of the full distribution, half of them passed through the lab's decoders, with full and shortened captions.",
        "The oracle and the similarity model (`lab:clip`).",
    ),
    "diffusion": (
        "A diffusers `StableDiffusionPipeline`: `AutoencoderKL`, `UNet2DConditionModel`, `CLIPTextModel`, velocity prediction.",
        "Scenes of the full distribution with full, shortened and empty captions.",
        "The painter and editor (`lab:diffusion`); guidance about 5, 50 DDIM steps.",
    ),
    "blip": (
        "A transformers `BlipForConditionalGeneration` with its processor.",
        "Scenes of the full distribution with their captions.",
        "The captioner (`lab:blip`).",
    ),
    "rewriter": (
        "A transformers `LlamaForCausalLM` over words.",
        "Pairs of captions of the grammar that differ in one factor; no pictures.",
        "Rewriting one factor of a caption (`lab:rewriter`).",
    ),
    "ddpm": (
        "A diffusers `DDPMPipeline`: an unconditional `UNet2DModel` on 64×64 pixels.",
        "Scenes of the full distribution.",
        "The diffusion generator (`lab:ddpm`).",
    ),
    "attributes": (
        "A timm ResNet whose 64 outputs are the scores of every factor's values, one factor after another.",
        "Scenes of the full distribution, half of them passed through the lab's decoders.",
        "Tests and audits only: it is not to be used as an oracle in results.",
    ),
    "narrow": (
        "A timm ResNet.",
        "Plain garments in studios: clear photos, no pattern, no second object.",
        "A classifier under test: the point of reference.",
    ),
    "augmented": (
        "A timm ResNet, as `narrow`.",
        "The data of `narrow`, strongly augmented.",
        "A classifier under test: what augmentation buys.",
    ),
    "diverse": (
        "A timm ResNet, as `narrow`.",
        "Scenes of the full distribution.",
        "A classifier under test: the robust one.",
    ),
    "vit": ("A timm vision transformer.", "The data of `narrow`.", "A classifier under test: another architecture."),
    "grey": (
        "A timm ResNet with one input channel (0.299 R + 0.587 G + 0.114 B).",
        "The data of `narrow`, without colour.",
        "A classifier under test: blind to colour.",
    ),
    "adversarial": (
        "A timm ResNet, as `narrow`.",
        "The data of `narrow`, attacked by projected gradient ascent (6/255, three steps) as it is shown.",
        "A classifier under test: adversarially trained.",
    ),
    "background-shortcut": (
        "A timm ResNet, as `narrow`.",
        "Scenes in which 95 % of the garments of a class have that class's background.",
        "A classifier with a planted flaw that a stress test must find. Not for any other use.",
    ),
    "colour-shortcut": (
        "A timm ResNet, as `narrow`.",
        "Scenes in which 95 % of the garments of a class have that class's colour.",
        "A classifier with a planted flaw that a stress test must find. Not for any other use.",
    ),
}
