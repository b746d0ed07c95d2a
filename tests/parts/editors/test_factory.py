"""Editors by name, and the messages about wrong names and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from diffusers import StableDiffusionPipeline

from counterfoil.core.errors import BadPart, BadSpec, BadWeights, UnknownName
from counterfoil.parts import registry
from counterfoil.parts.contracts import EditResult
from counterfoil.testing import pictures
from tests.parts.editors.conftest import CAPTION, EDITED, NONE, networks, scheduler


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    StableDiffusionPipeline(**networks(), scheduler=scheduler("v_prediction"), **NONE).save_pretrained(tmp_path / "sd")
    return tmp_path / "sd"


def test_a_pipeline_in_a_folder_is_an_editor(folder: Path) -> None:
    options = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5, "skip": 0}
    part = registry.create("editor", f"p2p:{folder}", options)
    assert part.sweep == ("self_replace=0.5",) and part.size == 16 and part.schedule.prediction == "v_prediction"
    (made,) = part.edit(part.invert(pictures(1, 16), [CAPTION], [1]), [EDITED])
    assert isinstance(made, EditResult)
    told = part.provenance()
    assert told["settings"]["inversion"] == "edit-friendly" and len(told["unet"]) == 64
    json.dumps(told)


def test_another_precision_changes_the_picture_by_rounding_alone(folder: Path) -> None:
    options = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5}
    made = []
    for precision in ("float32", "bfloat16"):
        part = registry.create("editor", f"p2p:{folder}", {**options, "precision": precision})
        made.append(part.edit(part.invert(pictures(1, 16), [CAPTION], [1]), [EDITED])[0].candidates)
    difference = (made[0] - made[1]).abs().mean()
    assert 0 < difference < 0.02  # a random network in two steps; eight bits of mantissa


def test_the_lab_has_an_editor() -> None:
    part = registry.create("editor", "lab:diffusion", {"inversion": "edit-friendly"})
    assert part.size == 64 and part.options.inversion == "edit-friendly" and len(part.sweep) >= 1


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("lab:diffusio", {}, UnknownName, "did you mean 'diffusion'"),
        ("lab:diffusion", {"stepz": 3}, BadSpec, "steps"),
        ("lab:diffusion", {"inversion": "magic"}, BadSpec, "null-text"),
        ("lab:diffusion", {"self_replace": "much"}, BadSpec, "self_replace"),
        ("lab:diffusion", {"batch": 0}, BadSpec, "batch"),
        ("lab:diffusion", {"inversion": "ddim", "skip": 0.5}, BadSpec, "skip is no option of ddim"),
        ("lab:diffusion", {"precision": "int8"}, BadSpec, "bfloat16"),
        ("p2p:", {}, BadPart, "name a folder"),
        ("p2p:/no/such/folder", {}, BadWeights, "no such folder"),
        ("instruct:", {}, BadPart, "name a folder"),
    ],
)
def test_wrong_names_and_options_are_answered_in_a_line(name: str, options: dict[str, object], error: type, says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        registry.create("editor", name, options)
    assert "\n" not in str(caught.value)


def test_a_folder_of_something_else_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadWeights, match="model_index"):
        registry.create("editor", f"p2p:{tmp_path / 'empty'}")
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, "text_encoder": ["transformers", "T5EncoderModel"]}))
    with pytest.raises(BadPart, match="T5EncoderModel"):
        registry.create("editor", f"p2p:{folder}")


def test_weights_that_lack_a_layer_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    state = load_file(file)
    del state["conv_out.weight"]
    save_file(state, file)
    with pytest.raises(BadWeights, match=r"conv_out\.weight"):
        registry.create("editor", f"p2p:{folder}")
