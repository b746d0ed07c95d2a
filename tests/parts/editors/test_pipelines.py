"""Pipelines of diffusers as editors: image to image, instructions, today's models, and FlowEdit against the paper's equations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInstructPix2PixPipeline, StableDiffusionPipeline
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Editor, EditResult, Inversion, Refusal
from counterfoil.parts.editors.flow import FlowEditor, FlowOptions
from counterfoil.parts.editors.instruct import InstructOptions, PipelineEditor, difference
from counterfoil.testing import pictures
from tests.parts.editors.conftest import CAPTION, EDITED, NONE, networks, scheduler
from tests.parts.editors.today import flux_1, klein, kontext, qwen, sd3


def instruct_editor() -> PipelineEditor:
    pipeline = StableDiffusionInstructPix2PixPipeline(**networks(channels=8), scheduler=scheduler(), **NONE)
    return PipelineEditor(pipeline, InstructOptions(sweep=(1.2, 3.0), steps=2, guidance=2.0))


def repainting() -> PipelineEditor:
    pipeline = StableDiffusionImg2ImgPipeline(**networks(), scheduler=scheduler(), **NONE)
    return PipelineEditor(pipeline, InstructOptions(sweep=(0.5, 1.0), steps=2, guidance=2.0))


def test_the_sweep_is_named_by_what_it_turns() -> None:
    assert instruct_editor().sweep == ("image_guidance_scale=1.2", "image_guidance_scale=3")
    assert repainting().sweep == ("strength=0.5", "strength=1")


def test_bad_rows_are_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    part = repainting()
    wrong, right = part.invert([torch.zeros(4, 16, 16), pictures(1, 16)[0]], [CAPTION, CAPTION], [1, 2])
    assert isinstance(wrong, Refusal) and "alpha" in wrong.reason and isinstance(right, Inversion)
    long, empty, good = part.edit([right] * 3, ["a dress " * 40, " ", EDITED])
    assert isinstance(long, Refusal) and "tokens" in long.reason
    assert isinstance(empty, Refusal) and "empty" in empty.reason and isinstance(good, EditResult)
    monkeypatch.setattr(part.pipeline.unet.conv_out, "forward", lambda rows: torch.full_like(rows[:, :4], float("nan")))
    (broken,) = part.edit([right], [EDITED])
    assert isinstance(broken, Refusal) and "not numbers" in broken.reason


def test_an_inversion_of_another_editor_is_refused() -> None:
    (refused,) = repainting().edit([Inversion(CAPTION, {"latent": torch.zeros(4, 8, 8)})], [EDITED])
    assert isinstance(refused, Refusal) and "invert the image again" in refused.reason


@pytest.mark.parametrize(
    ("edited", "prompt"),
    [
        (EDITED, "change red to blue"),
        (f"{CAPTION} in fog", "add in fog"),
        ("a photo of a wool dress on a beach", "remove red"),
        (CAPTION, CAPTION),
    ],
)
def test_instructions_say_what_changed(edited: str, prompt: str) -> None:
    assert instruct_editor()._prompt(CAPTION, edited) == prompt
    assert repainting()._prompt(CAPTION, edited) == edited


def test_a_change_runs_from_the_first_changed_word_to_the_last() -> None:
    assert difference("a bag on a beach", "a bag in a forest") == ("on a beach", "in a forest")


def test_an_instruction_of_ones_own() -> None:
    pipeline = StableDiffusionImg2ImgPipeline(**networks(), scheduler=scheduler(), **NONE)
    options = InstructOptions(instruction="turn {removed} into {added}")
    assert PipelineEditor(pipeline, options)._prompt(CAPTION, EDITED) == "turn red into blue"
    with pytest.raises(BadSpec, match="instruction may use"):
        InstructOptions(instruction="{colour}")


def test_a_pipeline_that_only_paints_is_refused() -> None:
    with pytest.raises(BadPart, match="does not edit images"):
        PipelineEditor(StableDiffusionPipeline(**networks(), scheduler=scheduler(), **NONE))


def edit(part: Any, seed: int = 1) -> EditResult:
    (found,) = part.invert(pictures(1, part.size), [CAPTION], [seed])
    assert isinstance(found, Inversion), found
    (made,) = part.edit([found], [EDITED])
    assert isinstance(made, EditResult), made
    return made


@pytest.mark.parametrize(
    ("make", "size", "sweep"),
    [(kontext, 32, (0, 1)), (klein, 64, (0, 1)), (qwen, 32, (0,))],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_pipeline_that_takes_image_and_prompt_alone_is_asked_with_several_seeds(
    make: Callable[[], Any], size: int, sweep: tuple[float, ...]
) -> None:
    part = PipelineEditor(make(), InstructOptions(sweep=sweep, steps=1, size=size))
    assert isinstance(part, Editor) and part.sweep == tuple(f"seed={value}" for value in sweep)
    made = edit(part)
    assert made.candidates.shape == (len(sweep), 3, size, size) and made.reconstruction.shape == (3, size, size)
    assert made.candidates.min() >= 0 and made.candidates.max() <= 1
    if len(sweep) > 1:
        assert not torch.equal(*made.candidates)
        again, other = edit(part), edit(part, seed=5)
        assert torch.equal(again.candidates, made.candidates) and not torch.equal(other.candidates, made.candidates)


def test_it_works_as_its_makers_say_unless_told_otherwise() -> None:
    part = PipelineEditor(kontext())
    assert part.size == part.pipeline.default_sample_size * part.pipeline.vae_scale_factor
    assert "num_inference_steps" not in part._settings() and "guidance_scale" not in part._settings()
    distilled = PipelineEditor(klein())._settings()
    assert distilled["num_inference_steps"] == 4 and distilled["guidance_scale"] == 1.0
    assert PipelineEditor(qwen(), InstructOptions(guidance=2.5))._settings()["true_cfg_scale"] == 2.5


def test_guidance_can_be_swept_over_instead() -> None:
    part = PipelineEditor(kontext(), InstructOptions(sweep=(1.0, 9.0), sweep_by="guidance", steps=2, size=32))
    assert part.sweep == ("guidance_scale=1", "guidance_scale=9") and not torch.equal(*edit(part).candidates)
    with pytest.raises(BadSpec, match="guidances to try"):
        InstructOptions(sweep_by="guidance")


def test_a_size_the_pipeline_does_not_take_is_a_refusal() -> None:
    part = PipelineEditor(klein(), InstructOptions(size=32))
    (made,) = part.edit(part.invert(pictures(1, 32), [CAPTION], [1]), [EDITED])
    assert isinstance(made, Refusal) and "too small" in made.reason


def test_instructions_may_be_as_long_as_the_longest_reading_encoder_reads() -> None:
    part = PipelineEditor(kontext(), InstructOptions(size=32, steps=1, sweep=0))
    found = part.invert(pictures(1, 32), [CAPTION], [1])
    (short,), (long,) = part.edit(found, [f"{CAPTION} in fog and snow"]), part.edit(found, [f"{CAPTION} {'in fog ' * 60}"])
    assert isinstance(short, EditResult) and isinstance(long, Refusal) and "96" in long.reason


@pytest.mark.parametrize("make", [kontext, klein, sd3])
def test_networks_made_fast_for_a_gpu_change_an_edit_by_rounding_alone(make: Callable[[], Any]) -> None:
    if make is sd3:
        part: Any = FlowEditor(make(), FlowOptions(steps=2, strength=1.0, size=64))
    else:
        part = PipelineEditor(make(), InstructOptions(sweep=0, steps=1, size=64))
    plain = edit(part)
    part.placed.accelerate(torch.bfloat16, torch.device("cpu"))
    close = edit(part)
    part.placed.undo()
    assert 0 < (close.candidates - plain.candidates).abs().mean() < 0.06  # random networks; eight bits of mantissa
    assert torch.equal(edit(part).candidates, plain.candidates)


def test_it_is_found_in_a_folder(tmp_path: Path) -> None:
    kontext().save_pretrained(tmp_path)
    part = registry.create("editor", f"instruct:{tmp_path}", {"steps": 1, "size": 32, "sweep": 0})
    assert type(part.pipeline).__name__ == "FluxKontextPipeline" and edit(part).candidates.shape == (1, 3, 32, 32)


def test_a_pipeline_that_needs_more_than_image_and_prompt_is_refused() -> None:
    class Inpainting:
        def __call__(self, prompt: str, image: Any, mask_image: Any) -> None: ...
        def set_progress_bar_config(self, disable: bool) -> None: ...

    with pytest.raises(BadPart, match="does not edit images"):
        PipelineEditor(Inpainting())


def flow_editor(make: Callable[[], Any], **more: Any) -> FlowEditor:
    return FlowEditor(make(), FlowOptions(**{"steps": 4, "strength": (0.5, 1.0), "size": 32, **more}))


@pytest.mark.parametrize("make", [sd3, flux_1])
def test_the_same_words_and_guidance_leave_the_image_as_it_is(make: Callable[[], Any]) -> None:
    part = flow_editor(make, source_guidance=3.0, guidance=3.0)
    (made,) = part.edit(part.invert(pictures(1, 32), [CAPTION], [1]), [CAPTION])
    assert isinstance(made, EditResult)
    torch.testing.assert_close(made.candidates, made.reconstruction.expand(2, -1, -1, -1), rtol=0, atol=1e-5)


class Between:
    """The straight flow from noise to one point per text: v(z, t) = (z − point) / t."""

    def velocity(self, latents: Tensor, time: Tensor, texts: dict[str, Tensor], guidance: float) -> Tensor:
        return (latents - texts["point"]) / (time / 1000)


def test_over_the_whole_walk_the_edit_moves_by_the_difference_of_the_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of that flow the walk is known: where image and source point agree, it ends at the edited point."""
    part = flow_editor(sd3, steps=50)
    monkeypatch.setattr(part.flow, "velocity", Between().velocity)
    one, other = torch.full((1, 4, 16, 16), 0.3), torch.full((1, 4, 16, 16), -0.8)
    made = part.walk(one, ({"point": one}, {"point": other}), share=1.0, seed=3)
    torch.testing.assert_close(made, other, rtol=0, atol=1e-4)
    untouched = part.walk(one, ({"point": one}, {"point": other}), share=0.0, seed=3)
    assert torch.equal(untouched, one)


def test_more_noises_per_step_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    part, calls = flow_editor(sd3, steps=2, average=3), []
    monkeypatch.setattr(part.flow, "velocity", lambda latents, *_: calls.append(latents) or torch.ones_like(latents))
    source = torch.zeros(1, 4, 16, 16)
    assert torch.equal(part.walk(source, ({}, {}), share=1.0, seed=1), source)  # equal velocities move nothing
    assert len(calls) == 2 * 3 * 2 and not torch.equal(calls[0], calls[2])


def test_packed_latents_come_back_where_they_were() -> None:
    """As diffusers packs and unpacks them."""
    part = flow_editor(flux_1)
    latents = torch.arange(4 * 8 * 8).float().reshape(1, 4, 8, 8)
    seen = []
    part.pipeline.transformer.forward = lambda **given: seen.append(given) or (given["hidden_states"],)
    made = part.flow.velocity(latents, torch.tensor(500.0), part.flow.embed(CAPTION), 2.0)
    assert torch.equal(made, latents)
    assert seen[0]["timestep"].item() == 0.5 and seen[0]["guidance"].item() == 2.0


def test_times_are_those_of_the_pipeline() -> None:
    part, latents = flow_editor(sd3), torch.zeros(1, 4, 16, 16)
    part.pipeline.scheduler.set_timesteps(4)
    torch.testing.assert_close(part._schedule(latents).sigmas, part.pipeline.scheduler.sigmas)
    shifted = flow_editor(flux_1)._schedule(latents)
    assert len(shifted.timesteps) == 4 and shifted.sigmas[0] == 1 and shifted.sigmas[-1] == 0


def test_only_flow_models_are_taken(tmp_path: Path) -> None:
    with pytest.raises(BadPart, match="is none of StableDiffusion3Pipeline, FluxPipeline"):
        FlowEditor(kontext())
    with pytest.raises(BadSpec, match="strength"):
        FlowOptions(strength=(1.5,))
