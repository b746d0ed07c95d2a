"""Painters over diffusers pipelines and behind HTTP."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from counterfoil.core.errors import RunFailed
from counterfoil.parts import registry
from counterfoil.parts.calls import paint, painting_fault
from counterfoil.parts.contracts import describe
from counterfoil.parts.painters.diffusers import DiffusersOptions, PipelinePainter, diffusers_painter
from counterfoil_lab.parts import WEIGHTS
from tests.parts.editors.conftest import networks
from tests.parts.editors.today import clip_text, flux_1, sd3
from tests.parts.endpoint import answering, serve

SENTENCES = [
    "a photo of a red wool dress on a beach",
    "a photo of a blue cotton bag in a city",
    "a photo of a green silk boot at sunset",
]
MANY = torch.tensor([11, 2**61 + 5, 7])

pytestmark = pytest.mark.xdist_group("painting")


@pytest.fixture(scope="module")
def lab() -> PipelinePainter:
    painter: PipelinePainter = registry.create("painter", "lab:diffusion", {"steps": 2})
    return painter


def test_an_image_depends_on_its_prompt_and_seed_alone(lab: PipelinePainter) -> None:
    together = lab.paint(SENTENCES, MANY)
    assert together.shape == (3, 3, 64, 64) and float(together.min()) >= 0 and float(together.max()) <= 1
    alone = torch.cat([lab.paint([text], seed[None]) for text, seed in zip(SENTENCES[::-1], MANY.flip(0), strict=True)])
    assert torch.equal(together.flip(0), alone)
    assert not torch.equal(lab.paint(SENTENCES[:1], MANY[1:2])[0], together[0])


def test_a_batch_is_filled_up_so_that_its_size_never_shows(lab: PipelinePainter) -> None:
    two = PipelinePainter(lab.pipeline, DiffusersOptions(steps=2, guidance=5.0, batch=2))
    assert torch.equal(two.paint(SENTENCES, MANY)[2], two.paint(SENTENCES[2:], MANY[2:])[0])


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
    found = painter.paint(SENTENCES, MANY)
    assert small.asked == [8, 4, 2, 2] and painter.batch == 2
    assert torch.equal(found, PipelinePainter(lab.pipeline, DiffusersOptions(steps=1, batch=2)).paint(SENTENCES, MANY))


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

    painted = paint(PipelinePainter(Filtered(lab.pipeline)), SENTENCES, MANY)
    assert painted.flagged == (True, False, False)
    assert paint(lab, SENTENCES[:1], MANY[:1]).flagged == (None,)  # the lab's has no filter, which is not the same as a pass
    assert "safety filter" in painting_fault(painted.images[0], flagged=True)
    assert not painting_fault(painted.images[1], flagged=False)


def test_provenance_names_weights_and_settings(lab: PipelinePainter) -> None:
    told = lab.provenance()
    assert told["scheduler"] == "DPMSolverMultistepScheduler" and "num_inference_steps 2" in told["settings"]
    assert len(told["weights unet"]) == 64


def xl() -> Any:
    """A Stable Diffusion XL of a few thousand weights."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextModelWithProjection

    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4), cross_attention_dim=32, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=16 + 6 * 8, transformer_layers_per_block=1, use_linear_projection=True,
    )  # fmt: skip
    first, second = clip_text(), clip_text(CLIPTextModelWithProjection)
    more = {"text_encoder_2": second["text_encoder"], "tokenizer_2": second["tokenizer"], "scheduler": EulerDiscreteScheduler()}
    return StableDiffusionXLPipeline(vae=networks()["vae"], unet=unet, **first, **more)


@pytest.mark.parametrize("family", [xl, sd3, flux_1])
def test_other_families_load_through_the_same_name(family: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    family().save_pretrained(tmp_path)
    painter = registry.create("painter", f"diffusers:{tmp_path}", {"steps": 2, "size": 16, "guidance": 2.0})
    together = painter.paint(SENTENCES[:2], MANY[:2])
    assert together.shape == (2, 3, 16, 16) and torch.isfinite(together).all()
    assert torch.equal(painter.paint(SENTENCES[1:2], MANY[1:2])[0], together[1])
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
    painted = paint(painter, SENTENCES[:1], MANY[:1])
    assert painted.flagged == (flagged,)
    assert ("safety filter" in painting_fault(painted.images[0], flagged=painted.flagged[0])) == flagged
    assert (float(painted.images.max()) == 0) == flagged  # the pipeline hands out black in its place
    assert paint(
        diffusers_painter(str(pipeline_with_filter), DiffusersOptions(steps=1, safety="off")), SENTENCES[:1], MANY[:1]
    ).flagged == (None,)


def test_it_says_what_it_is_made_for(lab: PipelinePainter) -> None:
    traits = {trait.what: trait for trait in describe(lab)}
    assert traits["images"].value == "64×64"
    assert traits["safety filter"].value == "none"
    assert traits["made for"].value == "sentences about the lab's garments" and "boot" in traits["made for"].classes
    assert [trait.what for trait in describe(PipelinePainter(lab.pipeline))] == ["images", "safety filter"]


PROMPTS = ["a red mug", "a blue mug", "a green mug"]
SEEDS = torch.tensor([1, 2, 3])


def test_it_paints_in_both_dialects_and_in_any_batch() -> None:
    with serve() as endpoint:
        answering(endpoint)
        own = registry.create("painter", endpoint.url, {"batch": 2})
        both = own.paint(PROMPTS, SEEDS)
        assert endpoint.posts == [2, 1]
        assert torch.equal(both[1], own.paint(PROMPTS[1:2], SEEDS[1:2])[0])
        other = registry.create("painter", endpoint.url, {"api": "openai", "model": "m"})
        assert torch.equal(other.paint(PROMPTS, SEEDS), both)


def test_withheld_pictures_are_flagged() -> None:
    with serve() as endpoint:
        answering(endpoint, flags=True)
        painted = paint(registry.create("painter", endpoint.url, {}), PROMPTS, SEEDS)
        assert painted.flagged == (False, True, False)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"images": []},
        {"pictures": []},
        {"images": ["not base64"] * 3},
        {"images": [base64.b64encode(b"no image").decode()] * 3},
        b"garbage",
        (503, b"busy", {}),
    ],
)
def test_an_endpoint_that_breaks_stops_the_run_so_that_it_can_go_on(spoiled: Any) -> None:
    with serve() as endpoint:
        answering(endpoint, lambda number, answer: spoiled)
        painter = registry.create("painter", endpoint.url, {"retries": 1, "backoff": 0.0})
        with pytest.raises(RunFailed, match="resumes once the endpoint is back") as caught:
            painter.paint(PROMPTS, SEEDS)
        assert "\n" not in str(caught.value)


def test_an_image_larger_than_asked_for_is_refused_by_its_header() -> None:
    side = 13_300  # one bit per pixel: a few kilobytes of PNG, two gigabytes of numbers
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    huge = base64.b64encode(file.getvalue()).decode()
    with serve() as endpoint:
        answering(endpoint, lambda number, answer: {"images": [huge]})
        for options, most in (({}, 4096), ({"size": 64}, 64)):
            painter = registry.create("painter", endpoint.url, {"retries": 0, **options})
            with pytest.raises(RunFailed, match=f"13300×13300 pixels, where at most {most}×{most} are taken"):
                painter.paint(PROMPTS[:1], SEEDS[:1])
