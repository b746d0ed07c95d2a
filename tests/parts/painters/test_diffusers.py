"""Painters over diffusers pipelines: the lab's, and small random ones of other families saved as on the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.calls import paint, painting_fault
from counterfoil.parts.contracts import describe
from counterfoil.parts.painters.diffusers import DiffusersOptions, PipelinePainter, diffusers_painter
from counterfoil.testing import check_painter
from counterfoil_lab.parts import WEIGHTS

PROMPTS = [
    "a photo of a red wool dress on a beach",
    "a photo of a blue cotton bag in a city",
    "a photo of a green silk boot at sunset",
]
SEEDS = torch.tensor([11, 2**61 + 5, 7])

pytestmark = pytest.mark.xdist_group("painting")


@pytest.fixture(scope="module")
def lab() -> PipelinePainter:
    painter: PipelinePainter = registry.create("painter", "lab:diffusion", {"steps": 2})
    return painter


def test_an_image_depends_on_its_prompt_and_seed_alone(lab: PipelinePainter) -> None:
    together = lab.paint(PROMPTS, SEEDS)
    assert together.shape == (3, 3, 64, 64) and float(together.min()) >= 0 and float(together.max()) <= 1
    alone = torch.cat([lab.paint([text], seed[None]) for text, seed in zip(PROMPTS[::-1], SEEDS.flip(0), strict=True)])
    assert torch.equal(together.flip(0), alone)
    assert not torch.equal(lab.paint(PROMPTS[:1], SEEDS[1:2])[0], together[0])


def test_it_keeps_the_contract(lab: PipelinePainter) -> None:
    check_painter(lab, prompts=PROMPTS[:2])


def test_a_batch_is_filled_up_so_that_its_size_never_shows(lab: PipelinePainter) -> None:
    two = PipelinePainter(lab.pipeline, DiffusersOptions(steps=2, guidance=5.0, batch=2))
    assert torch.equal(two.paint(PROMPTS, SEEDS)[2], two.paint(PROMPTS[2:], SEEDS[2:])[0])


def test_memory_that_runs_out_is_survived_by_smaller_batches(lab: PipelinePainter) -> None:
    class Small:
        """A pipeline on a device with room for two images."""

        device = torch.device("cpu")

        def __init__(self) -> None:
            self.asked: list[int] = []

        def set_progress_bar_config(self, **options: Any) -> None: ...

        def __call__(self, prompt: list[str], generator: Any, output_type: str, **options: Any) -> Any:
            self.asked.append(len(prompt))
            if len(prompt) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return lab.pipeline(prompt=prompt, generator=generator, output_type=output_type, num_inference_steps=1)

    small = Small()
    painter = PipelinePainter(small, DiffusersOptions(batch=8))
    found = painter.paint(PROMPTS, SEEDS)
    assert small.asked == [8, 4, 2, 2] and painter.batch == 2
    assert torch.equal(found, PipelinePainter(lab.pipeline, DiffusersOptions(steps=1, batch=2)).paint(PROMPTS, SEEDS))


def test_the_filters_verdict_is_recorded(lab: PipelinePainter) -> None:
    class Filtered:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        device = torch.device("cpu")

        def set_progress_bar_config(self, **options: Any) -> None: ...

        def __call__(self, prompt: list[str], generator: Any, output_type: str, **options: Any) -> Any:
            found = self.inner(prompt=prompt, generator=generator, output_type=output_type, num_inference_steps=1)
            found.nsfw_content_detected = ["dress" in text for text in prompt]
            return found

    painted = paint(PipelinePainter(Filtered(lab.pipeline)), PROMPTS, SEEDS)
    assert painted.flagged == (True, False, False)
    assert paint(lab, PROMPTS[:1], SEEDS[:1]).flagged == (None,)  # the lab's has no filter, which is not the same as a pass
    assert "safety filter" in painting_fault(painted.images[0], flagged=True)
    assert not painting_fault(painted.images[1], flagged=False)


def test_provenance_names_weights_and_settings(lab: PipelinePainter) -> None:
    told = lab.provenance()
    assert told["scheduler"] == "DPMSolverMultistepScheduler" and "num_inference_steps 2" in told["settings"]
    assert len(told["weights unet"]) == 64


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(WEIGHTS / "diffusion" / "tokenizer")


def _text(width: int, *, projected: bool) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    tokenizer = _tokenizer()
    config = CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=width, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=tokenizer.model_max_length, projection_dim=width,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def _vae(channels: int) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=channels, block_out_channels=(8,), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",), sample_size=16,
        **({"use_quant_conv": False, "use_post_quant_conv": False, "shift_factor": 0.0} if channels == 16 else {}),
    )  # fmt: skip


def xl() -> Any:
    """A Stable Diffusion XL of a few thousand weights."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4), cross_attention_dim=16, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=8 + 6 * 8, transformer_layers_per_block=1, use_linear_projection=True,
    )  # fmt: skip
    return StableDiffusionXLPipeline(
        vae=_vae(4), text_encoder=_text(8, projected=False), text_encoder_2=_text(8, projected=True),
        tokenizer=_tokenizer(), tokenizer_2=_tokenizer(), unet=unet, scheduler=EulerDiscreteScheduler(),
    )  # fmt: skip


def three() -> Any:
    """A Stable Diffusion 3 of a few thousand weights."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import T5Config, T5EncoderModel

    transformer = SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=16, out_channels=16, num_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=32, caption_projection_dim=16, pooled_projection_dim=16, pos_embed_max_size=16,
    )  # fmt: skip
    long = T5Config(vocab_size=len(_tokenizer()), d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return StableDiffusion3Pipeline(
        transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler(), vae=_vae(16), text_encoder=_text(8, projected=True),
        tokenizer=_tokenizer(), text_encoder_2=_text(8, projected=True), tokenizer_2=_tokenizer(),
        text_encoder_3=T5EncoderModel(long),
        tokenizer_3=_tokenizer(),
    )  # fmt: skip


def flux() -> Any:
    """A Flux of a few thousand weights."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import T5Config, T5EncoderModel

    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=8, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    long = T5Config(vocab_size=len(_tokenizer()), d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), vae=_vae(16), text_encoder=_text(8, projected=False),
        tokenizer=_tokenizer(), text_encoder_2=T5EncoderModel(long), tokenizer_2=_tokenizer(), transformer=transformer,
    )  # fmt: skip


@pytest.mark.parametrize("family", [xl, three, flux])
def test_other_families_load_through_the_same_name(family: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    family().save_pretrained(tmp_path)
    painter = registry.create("painter", f"diffusers:{tmp_path}", {"steps": 2, "size": 16, "guidance": 2.0})
    together = painter.paint(PROMPTS[:2], SEEDS[:2])
    assert together.shape == (2, 3, 16, 16) and torch.isfinite(together).all()
    assert torch.equal(painter.paint(PROMPTS[1:2], SEEDS[1:2])[0], together[1])
    assert painter.provenance()["pipeline"] == type(family()).__name__


@pytest.fixture
def pipeline_with_filter(tmp_path: Path) -> Path:
    """The lab's pipeline with the safety filter of Stable Diffusion 1, small and with random weights, as the hub keeps it."""
    from diffusers import StableDiffusionPipeline
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor

    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32}
    torch.manual_seed(0)
    checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config={**vision, "patch_size": 16}, projection_dim=8))
    inner = StableDiffusionPipeline.from_pretrained(WEIGHTS / "diffusion", safety_checker=None)
    look = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    parts = {**inner.components, "safety_checker": checker, "feature_extractor": look}
    StableDiffusionPipeline(**parts, requires_safety_checker=True).save_pretrained(tmp_path / "guarded")
    return tmp_path / "guarded"


@pytest.mark.parametrize(("bar", "flagged"), [(-2.0, True), (2.0, False)])
def test_a_real_safety_filter_is_recorded_and_what_it_withholds_is_counted(
    pipeline_with_filter: Path, bar: float, flagged: bool
) -> None:
    painter = diffusers_painter(str(pipeline_with_filter), DiffusersOptions(steps=1))
    weights = painter.pipeline.safety_checker
    weights.concept_embeds_weights.data.fill_(bar)  # a cosine is never below −1, nor above 2
    weights.special_care_embeds_weights.data.fill_(2.0)
    painted = paint(painter, PROMPTS[:1], SEEDS[:1])
    assert painted.flagged == (flagged,)
    assert ("safety filter" in painting_fault(painted.images[0], flagged=painted.flagged[0])) == flagged
    assert (float(painted.images.max()) == 0) == flagged  # the pipeline hands out black in its place
    assert paint(
        diffusers_painter(str(pipeline_with_filter), DiffusersOptions(steps=1, safety="off")), PROMPTS[:1], SEEDS[:1]
    ).flagged == (None,)


def test_a_pipeline_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    shutil.copytree(WEIGHTS / "diffusion", tmp_path / "lab")
    file = tmp_path / "lab" / "unet" / "diffusion_pytorch_model.safetensors"
    state = load_file(file)
    del state["mid_block.attentions.0.norm.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(BadWeights, match=r"the weights lack mid_block\.attentions\.0\.norm\.weight, ") as caught:
        diffusers_painter(str(tmp_path / "lab"), DiffusersOptions())
    assert "\n" not in str(caught.value)


def test_it_says_what_it_is_made_for(lab: PipelinePainter) -> None:
    traits = {trait.what: trait for trait in describe(lab)}
    assert traits["images"].value == "64×64"
    assert traits["safety filter"].value == "none"
    assert traits["made for"].value == "sentences about the lab's garments" and "boot" in traits["made for"].classes
    assert [trait.what for trait in describe(PipelinePainter(lab.pipeline))] == ["images", "safety filter"]


def test_what_cannot_be_loaded_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model_index.json").write_text(json.dumps({"_class_name": "NoSuchPipeline", "_diffusers_version": "0.40"}))
    for place, kind in ((tmp_path / "empty", BadWeights), (broken, BadWeights), ("", BadPart)):
        with pytest.raises(kind) as caught:
            diffusers_painter(str(place), DiffusersOptions())
        assert "\n" not in str(caught.value)
    with pytest.raises(BadPart, match="no scheduler"):
        registry.create("painter", "lab:diffusion", {"scheduler": "NoSuchScheduler"})


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    xl().save_pretrained(tmp_path, safe_serialization=False)
    with pytest.raises(BadWeights):
        diffusers_painter(str(tmp_path), DiffusersOptions())


def test_faults_of_paintings() -> None:
    good = torch.rand(3, 8, 8)
    assert painting_fault(good) == ""
    assert "black" in painting_fault(torch.zeros(3, 8, 8))
    assert "one colour" in painting_fault(torch.full((3, 8, 8), 0.5))
    assert "not finite" in painting_fault(good * float("nan"))
    assert "outside" in painting_fault(good * 3)
