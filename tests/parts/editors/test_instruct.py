"""Image-to-image pipelines of diffusers as editors, with tiny networks of the real classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInstructPix2PixPipeline, StableDiffusionPipeline
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadPart, BadSpec, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.contracts import Editor, EditResult, Inversion, Refusal
from counterfoil.parts.editors.instruct import InstructOptions, PipelineEditor, difference
from counterfoil.testing import check_editor, pictures
from tests.parts.editors.conftest import CAPTION, EDITED, NONE, networks, scheduler


def instruct_editor() -> PipelineEditor:
    pipeline = StableDiffusionInstructPix2PixPipeline(**networks(channels=8), scheduler=scheduler(), **NONE)
    return PipelineEditor(pipeline, InstructOptions(sweep=(1.2, 3.0), steps=2, guidance=2.0))


def repainting() -> PipelineEditor:
    pipeline = StableDiffusionImg2ImgPipeline(**networks(), scheduler=scheduler(), **NONE)
    return PipelineEditor(pipeline, InstructOptions(sweep=(0.5, 1.0), steps=2, guidance=2.0))


@pytest.mark.parametrize("make", [instruct_editor, repainting])
def test_pictures_are_edited_row_by_row(make) -> None:  # type: ignore[no-untyped-def]
    part = make()
    check_editor(part, caption=CAPTION, edited=EDITED)
    assert isinstance(part, Editor) and part.size == 16
    images = pictures(3, 16)
    found = part.invert(images, [CAPTION] * 3, [1, 2, 3])
    made = part.edit(found, [EDITED, CAPTION, EDITED])
    assert all(isinstance(row, EditResult) for row in made)
    assert made[0].candidates.shape == (2, 3, 16, 16) and not torch.equal(*made[0].candidates)
    assert made[0].candidates.min() >= 0 and made[0].candidates.max() <= 1
    (alone,) = part.edit(part.invert(images[2:], [CAPTION], [3]), [EDITED])
    assert torch.equal(alone.candidates, made[2].candidates)  # by the image's own seed
    assert made[0].reconstruction.shape == (3, 16, 16)


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


def test_pipelines_are_found_by_name(tmp_path: Path) -> None:
    StableDiffusionInstructPix2PixPipeline(**networks(channels=8), scheduler=scheduler(), **NONE).save_pretrained(
        tmp_path / "told"
    )
    StableDiffusionPipeline(**networks(), scheduler=scheduler(), **NONE).save_pretrained(tmp_path / "plain")
    part = registry.create("editor", f"instruct:{tmp_path / 'told'}", {"sweep": 1.5, "steps": 2})
    assert part.sweep == ("image_guidance_scale=1.5",)
    assert registry.create("editor", f"instruct:{tmp_path / 'plain'}", {"sweep": [0.5]}).sweep == ("strength=0.5",)
    with pytest.raises(BadWeights, match=r"has no model_index\.json"):
        registry.create("editor", f"instruct:{tmp_path}")
    file = tmp_path / "told" / "unet" / "diffusion_pytorch_model.safetensors"
    state = load_file(file)
    del state["conv_in.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(BadWeights, match=r"the weights lack conv_in\.weight, "):
        registry.create("editor", f"instruct:{tmp_path / 'told'}")
