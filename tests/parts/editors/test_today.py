"""Editing pipelines of today behind the contract of editors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Editor, EditResult, Inversion, Refusal
from counterfoil.parts.editors.flow import FlowEditor, FlowOptions
from counterfoil.parts.editors.instruct import InstructOptions, PipelineEditor
from counterfoil.testing import pictures
from tests.parts.editors.conftest import CAPTION, EDITED
from tests.parts.editors.today import klein, kontext, qwen, sd3


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
