"""Size and speed of a model: counted once, measured once, and never asked of a server."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from counterfoil.parts.models.modules import ModuleModel
from counterfoil.protocols.fmr import speed


class Counting:
    """A black box that counts the images it is shown."""

    classes = ("a", "b")
    differentiable = False

    def __init__(self) -> None:
        self.shown = 0

    def logits(self, images: Tensor) -> Tensor:
        self.shown += len(images)
        return torch.zeros(len(images), 2)


def test_weights_are_counted_once() -> None:
    shared = nn.Linear(3, 4)
    assert speed.parameters(ModuleModel(nn.Sequential(shared, shared), ["a", "b", "c", "d"])) == 16
    assert speed.parameters(Counting()) is None


def test_figures_are_kept_beside_the_run(tmp_path: Path) -> None:
    model = Counting()
    speed.record(model, "python:m", tmp_path, size=8, device="cpu")
    figures = json.loads((tmp_path / "speed.json").read_bytes())
    assert figures["images_per_second"] > 0
    assert (figures["batch"], figures["size"], figures["device"], figures["parameters"]) == (8, 8, "cpu", None)
    calls = model.shown // 8
    assert speed.FEWEST < calls <= speed.MOST + 1
    speed.record(model, "python:m", tmp_path, size=8, device="cpu")
    assert model.shown == 8 * calls  # a resumed run keeps what it has


def test_a_server_is_not_asked(tmp_path: Path) -> None:
    model = Counting()
    speed.record(model, "https://example.org/model", tmp_path, size=8, device="cpu")
    assert model.shown == 0
    assert "images_per_second" not in json.loads((tmp_path / "speed.json").read_bytes())
