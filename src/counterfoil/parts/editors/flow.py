"""FlowEdit over Stable Diffusion 3 and FLUX.1: walk from the image to its edit along the difference of two velocities.

Paper: Kulikov, Kleiner, Huberman-Spiegelglas and Michaeli, "FlowEdit: Inversion-free text-based editing using pre-trained flow
models". At every level of noise the image and the edit so far get the same noise; the edit moves by how much the velocity
under the edited caption differs from that under the caption. Nothing is inverted or fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.contracts import Refusal
from counterfoil.parts.editors.diffusion import Precision, guide
from counterfoil.parts.editors.instruct import PixelEditor
from counterfoil.parts.editors.inversion import check_range
from counterfoil.parts.fast import dtypes
from counterfoil.parts.pretrained import DTYPES, load_pipeline


@dataclass(frozen=True)
class FlowOptions:
    """Options of FlowEdit; None leaves what the paper has for the model."""

    steps: int | None = None
    strength: float | tuple[float, ...] | None = None  # share of the steps that edit; one candidate each
    source_guidance: float | None = None
    guidance: float | None = None  # under the edited caption
    average: int = 1  # noises per step
    size: int | None = None
    precision: Precision | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        check_range("average", self.average, 1, 100)
        for name, highest in (("steps", 1000), ("source_guidance", 100), ("guidance", 100)):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), 1 if name == "steps" else 0, highest)
        for share in self.strengths or ():
            check_range("strength", share, 0, 1)
        if self.strengths == ():
            raise BadSpec("strength is a share of the steps, or several to try, got none; write strength=[0.6, 0.8]")

    @property
    def strengths(self) -> tuple[float, ...] | None:
        """Share of the steps that edit, one per candidate; None for the model's default."""
        given = self.strength
        return given if given is None else tuple(given) if isinstance(given, Sequence) else (given,)


class StableDiffusion3:
    """Stable Diffusion 3: guided by the difference from the empty text. The paper's numbers, its strength in the middle."""

    steps, strengths, guidances = 50, (0.5, 0.66, 0.8), (3.5, 13.5)

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def embed(self, text: str) -> dict[str, Tensor]:
        """Embeddings of the empty text and of the text."""
        texts, empty, pooled, empty_pooled = self._pipeline.encode_prompt(text, None, None)
        return {"encoder_hidden_states": torch.cat([empty, texts]), "pooled_projections": torch.cat([empty_pooled, pooled])}

    def velocity(self, latents: Tensor, time: Tensor, texts: dict[str, Tensor], guidance: float) -> Tensor:
        """Both sides in one call."""
        rows = latents.expand(2, -1, -1, -1).to(texts["encoder_hidden_states"].dtype)
        found = self._pipeline.transformer(hidden_states=rows, timestep=time.expand(2), return_dict=False, **texts)[0].float()
        return guide(found[:1], found[1:], guidance)

    def tokens(self, latents: Tensor) -> int:
        """One patch for every few latents."""
        side = int(self._pipeline.transformer.config.patch_size)
        return (latents.shape[-2] // side) * (latents.shape[-1] // side)


class Flux:
    """FLUX.1: guidance is an input of the network; latents are packed into patches of two by two."""

    steps, strengths, guidances = 28, (0.7, 0.86, 0.95), (1.5, 5.5)

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def embed(self, text: str) -> dict[str, Tensor]:
        """Embeddings of the text."""
        texts, pooled, ids = self._pipeline.encode_prompt(text)
        return {"encoder_hidden_states": texts, "pooled_projections": pooled, "txt_ids": ids}

    def velocity(self, latents: Tensor, time: Tensor, texts: dict[str, Tensor], guidance: float) -> Tensor:
        """One call, with the guidance as an input where the network was distilled to take it."""
        transformer, (_, channels, height, width) = self._pipeline.transformer, latents.shape
        dtype = texts["encoder_hidden_states"].dtype
        packed = self._pipeline._pack_latents(latents.to(dtype), 1, channels, height, width)
        places = self._pipeline._prepare_latent_image_ids(1, height // 2, width // 2, latents.device, dtype)
        strength = torch.full((1,), guidance, device=latents.device) if transformer.config.guidance_embeds else None
        found = transformer(
            hidden_states=packed, timestep=time.expand(1) / 1000, guidance=strength, img_ids=places, return_dict=False, **texts
        )[0].float()
        patches = found.view(1, height // 2, width // 2, channels, 2, 2)
        unpacked: Tensor = patches.permute(0, 3, 1, 4, 2, 5).reshape(latents.shape)
        return unpacked

    def tokens(self, latents: Tensor) -> int:
        """A patch for every two by two latents."""
        return (latents.shape[-2] // 2) * (latents.shape[-1] // 2)


Flow = StableDiffusion3 | Flux
FLOWS: Final[dict[str, type[Flow]]] = {"StableDiffusion3Pipeline": StableDiffusion3, "FluxPipeline": Flux}


def flowedit(name: str, options: FlowOptions) -> FlowEditor:
    """FlowEdit over Stable Diffusion 3 or FLUX.1: flowedit:stabilityai/stable-diffusion-3.5-medium (1.9 s, 16 GiB), or a folder.

    `strength` is the share of the steps that edit, one candidate each; `guidance` holds under the edited caption and
    `source_guidance` under the caption; `average` noises are drawn per step. `steps` and the rest are the paper's for the model
    unless given. `precision` is float32, bfloat16 or float16; by default float32 on a CPU, and on a GPU bfloat16 for denoiser
    and decoder. Time and memory are of an edit at 512 px on an H200, without the T5 text encoder.
    """
    from diffusers import DiffusionPipeline

    what, dtype = f"flowedit:{name}", DTYPES[options.precision or "float32"]
    wanted = "a Stable Diffusion 3 or FLUX.1 pipeline"
    return FlowEditor(
        load_pipeline(DiffusionPipeline, what, name, wanted=wanted, dtype=dtype, revision=options.revision), options
    )


class FlowEditor(PixelEditor):
    """Edits by FlowEdit."""

    def __init__(self, pipeline: Any, options: FlowOptions | None = None) -> None:
        self.options = options or FlowOptions()
        super().__init__(pipeline, size=self.options.size, precision=self.options.precision)
        kind = FLOWS.get(type(pipeline).__name__)
        if kind is None:
            raise BadPart(f"flowedit: a {type(pipeline).__name__} is none of {', '.join(FLOWS)}")
        self.flow: Flow = kind(pipeline)
        self.steps = self.options.steps or self.flow.steps
        self.strengths = self.options.strengths or self.flow.strengths
        given = self.options.source_guidance, self.options.guidance
        self.guidances = tuple(own if one is None else one for one, own in zip(given, self.flow.guidances, strict=True))
        self.sweep = tuple(f"strength={share:g}" for share in self.strengths)

    def provenance(self) -> dict[str, Any]:
        settings = {"steps": self.steps, "guidances": list(self.guidances), "average": self.options.average}
        return {**self.placed.provenance(), "settings": settings}

    def _candidates(self, image: Tensor, caption: str, edited: str, seed: int) -> list[Tensor] | Refusal:
        config, device = self.pipeline.vae.config, self.placed.device
        shift, scale = config.shift_factor or 0.0, config.scaling_factor
        with dtypes.computing("float32" if self.options.precision == "float32" else "bf16", device, low=False):
            source = (self.encode(image).float() - shift) * scale
            texts = self.flow.embed(caption), self.flow.embed(edited)
            walked = [self.walk(source, texts, share=share, seed=seed) for share in self.strengths]
            return [self.decode(latents / scale + shift) for latents in walked]

    def walk(self, source: Tensor, texts: tuple[dict[str, Tensor], dict[str, Tensor]], *, share: float, seed: int) -> Tensor:
        """The latents of the edit.  # (1, C, h, w) → same"""
        scheduler, noises = self._schedule(source), torch.Generator("cpu").manual_seed(seed % 2**63)
        edit = source.clone()
        for step in range(self.steps - round(share * self.steps), self.steps):
            time, noise_share, below = scheduler.timesteps[step], scheduler.sigmas[step], scheduler.sigmas[step + 1]
            moved = torch.zeros_like(source)
            for _ in range(self.options.average):
                noise = torch.randn(source.shape, generator=noises).to(source)
                noisy = (1 - noise_share) * source + noise_share * noise
                before = self.flow.velocity(noisy, time, texts[0], self.guidances[0])
                moved += self.flow.velocity(edit + noisy - source, time, texts[1], self.guidances[1]) - before
            edit = edit + (below - noise_share) * moved / self.options.average
        return edit

    def _schedule(self, latents: Tensor) -> Any:
        """The scheduler with its times and shares of noise set, shifted for an image of this size where it asks for that."""
        from diffusers import FlowMatchEulerDiscreteScheduler

        scheduler = FlowMatchEulerDiscreteScheduler.from_config(self.pipeline.scheduler.config)
        config, shift = scheduler.config, {}
        if config.use_dynamic_shifting:
            span = config.max_image_seq_len - config.base_image_seq_len
            slope = (config.max_shift - config.base_shift) / span
            shift["mu"] = config.base_shift + slope * (self.flow.tokens(latents) - config.base_image_seq_len)
        sigmas = torch.linspace(1, 1 / self.steps, self.steps).tolist() if isinstance(self.flow, Flux) else None
        steps = {"sigmas": sigmas} if sigmas else {"num_inference_steps": self.steps}
        scheduler.set_timesteps(device=latents.device, **steps, **shift)
        return scheduler
