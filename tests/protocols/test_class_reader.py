"""Classifiers read in the classes of a set, where a class may stand for several outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import LabelMismatch, RunFailed
from counterfoil.parts import imagenet, labels
from counterfoil.protocols.class_reader import reading
from counterfoil.protocols.imagenet_d.grid import read_grid


@dataclass
class Fixed:
    """Gives the same answer for every image."""

    scores: Sequence[float]
    classes: Sequence[str]
    aliases: labels.Aliases | None = None
    differentiable: bool = False

    def logits(self, images: Tensor) -> Tensor:
        return torch.tensor(self.scores)[None].repeat(len(images), 1)


PICTURE = torch.zeros(1, 3, 4, 4)
CLASSES = {"clock": ("n1", "n2"), "mug": ("n3",)}


def test_a_hit_on_any_id_is_right() -> None:
    model = Fixed([0.0, 3.0, 1.0, 2.0], ["n1", "n2", "n3", "other thing"])
    look = reading("m", model, list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert look["correct"] and look["predicted"] == 0 and look["rank"] == 1 and look["said"] == "n2"
    chances = torch.tensor([0.0, 3.0, 1.0, 2.0]).softmax(0)
    assert look["truth"] == pytest.approx(float(chances[0] + chances[1]))
    assert look["wrong"] == 1


def test_an_answer_outside_the_set_is_wrong_and_keeps_its_name() -> None:
    model = Fixed([0.0, 1.0, 2.0, 3.0], ["n1", "n2", "n3", "other thing"])
    look = reading("m", model, list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert not look["correct"] and look["predicted"] == -1 and look["said"] == "other thing" and look["rank"] == 3


def test_a_zero_shot_model_goes_by_the_sets_own_names() -> None:
    look = reading("m", Fixed([0.0, 1.0], ["mug", "clock"]), list(CLASSES), CLASSES).looks(PICTURE, [0])[0]
    assert look["correct"] and look["predicted"] == 0


def test_imagenet_models_take_the_papers_objects() -> None:
    entries = imagenet.classes()
    model = Fixed(
        [float(at == 530) for at in range(1000)], [entry.name for entry in entries], [entry.aliases for entry in entries]
    )
    grid = read_grid("imagenet-d")
    reader = reading("m", model, grid.classes, {each.name: each.ids for each in grid.objects})
    assert reader.outputs[grid.classes.index("alarm clock")] == (409, 530)
    assert sum(map(len, reader.outputs)) == 125
    assert reader.looks(PICTURE, [grid.classes.index("alarm clock")])[0]["correct"]


def test_other_label_spaces_and_broken_scores_are_errors() -> None:
    with pytest.raises(LabelMismatch, match="model m"):
        reading("m", Fixed([0.0, 1.0], ["oak", "elm"]), list(CLASSES), CLASSES)
    broken = Fixed([float("nan"), 1.0, 1.0], ["n1", "n2", "n3"])
    with pytest.raises(RunFailed, match="not finite"):
        reading("m", broken, list(CLASSES), CLASSES).looks(PICTURE, [0])
