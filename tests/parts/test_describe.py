"""Every part says what it gets and assumes, who decided it, and what was not asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from counterfoil.parts import registry
from counterfoil.parts.contracts import Trait, caution_for, describe
from counterfoil.parts.models.modules import GroupedModel, ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, square
from counterfoil.parts.oracles.scoring import AcceptanceRule, ClassifierOracle
from tests.fakes import CLASSES
from tests.parts.created import onnx_model, pt2_model
from tests.parts.models import programs

NAMES = list(CLASSES)


def traits_of(part: Any) -> dict[str, Trait]:
    return {trait.what: trait for trait in describe(part)}


def model(preprocessing: Preprocessing | None = None) -> ModuleModel:
    return ModuleModel(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)), NAMES, preprocessing=preprocessing)


def test_an_onnx_file_says_that_imagenets_mean_and_std_are_assumed(tmp_path: Path) -> None:
    file = programs.onnx_file(tmp_path / "m.onnx")
    assumed = traits_of(onnx_model(file, classes=NAMES, size=16))["normalisation"]
    assert str(assumed) == "mean 0.485, 0.456, 0.406; std 0.229, 0.224, 0.225 (assumed)"
    assert assumed.caution == "no mean and std were given, so ImageNet's are assumed; give those it was trained with"
    given = traits_of(onnx_model(file, classes=NAMES, size=16, mean=0, std=1))
    assert str(given["normalisation"]) == "mean 0, 0, 0; std 1, 1, 1 (the options)" and not given["normalisation"].caution
    assert given["outputs"].decided_by == "a look at two outputs"


def test_a_program_says_where_its_size_comes_from(tmp_path: Path) -> None:
    found = traits_of(pt2_model(programs.export_program(tmp_path / "m.pt2"), classes=NAMES, size=16, mean=0, std=1))
    assert found["input"].value == "16×16: shorter side to 16, the centre cropped, bilinear"
    assert found["input"].decided_by == "the options"


@pytest.mark.parametrize(
    ("preprocessing", "seen", "normalisation"),
    [
        (None, "any size, as given", "none: pixels in [0, 1] (assumed)"),
        (
            square(224, mean=[0.5] * 3, std=[0.25] * 3, crop=0.875),
            "224×224: shorter side to 256, the centre cropped, bilinear (its author)",
            "mean 0.5, 0.5, 0.5; std 0.25, 0.25, 0.25 (its author)",
        ),
        (
            Preprocessing(size=(8, 12), resizing="squash"),
            "8×12: squashed to 8×12, bilinear (its author)",
            "none: pixels in [0, 1] (assumed)",
        ),
    ],
)
def test_a_module_says_what_is_done_to_its_images(preprocessing: Preprocessing | None, seen: str, normalisation: str) -> None:
    found = traits_of(model(preprocessing))
    assert str(found["input"]) == seen and str(found["normalisation"]) == normalisation
    assert bool(found["normalisation"].caution) == ("assumed" in normalisation)


def test_wrappers_say_what_they_wrap_and_oracles_their_rule() -> None:
    inner = model(square(32, mean=[0.0] * 3, std=[1.0] * 3))
    plain = traits_of(ClassifierOracle(inner))
    assert str(plain["rule"]) == "accepts the most probable of the data's classes; no threshold (the default)"
    assert plain["input"] == traits_of(inner)["input"]
    strict = traits_of(ClassifierOracle(inner, acceptance=AcceptanceRule(0.6, 0.1, "abstain")))["rule"]
    assert strict.value.endswith("ahead by 0.1; abstains below a probability of 0.6") and strict.decided_by == "the options"
    grouped = traits_of(GroupedModel(inner, {"insect": ["ant", "bee"], "mammal": ["cat", "dog"]}))
    assert grouped["classes"].value == "insect: 2, mammal: 2" and grouped["input"] == plain["input"]


def test_a_part_made_for_some_classes_is_told_with_a_caution_where_others_are_asked_for() -> None:
    garments = registry.create("model", "lab:narrow")
    trait = traits_of(garments)["made for"]
    assert str(trait) == "images of the lab's garments (its author)"
    assert caution_for(trait, ["Boot", "bag"]) == ""
    strange = caution_for(trait, ["boot", "ant", "bee", "cat", "dog"])
    assert (
        strange
        == "made for images of the lab's garments, not for ant, bee, cat and 1 more; results for other classes mean nothing"
    )
    painted = traits_of(registry.create("painter", "lab:scenes"))["made for"]
    assert caution_for(painted, ["bird"]).startswith("made for sentences about the lab's garments, not for bird;")
    assert caution_for(Trait("rule", "none", caution="take another"), ["bird"]) == "take another"
    assert "made for" in traits_of(ClassifierOracle(garments)) and "made for" in traits_of(registry.create("oracle", "lab:clip"))
    assert traits_of(garments)["normalisation"].decided_by == "the weights"


def test_a_part_that_describes_nothing_gives_its_size() -> None:
    class Sized:
        size = 64

    assert describe(Sized()) == [Trait("input", "64×64", "the part")]
    assert describe(torch.nn.Identity()) == []
