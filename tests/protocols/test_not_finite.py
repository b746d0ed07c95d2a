"""Oracles and models of the staged protocols whose scores are no numbers: the run ends in a line that names them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import RunFailed
from counterfoil.parts.contracts import Verdicts
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets


class Lost(squares.SquareOracle):
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return Verdicts(torch.zeros(len(images), dtype=torch.int8), torch.full((len(images),), torch.nan), labels)


class Empty(pets.Leaning):
    def logits(self, images: Tensor) -> Tensor:
        return torch.full((len(images), 2), torch.nan)


def test_an_oracle_of_painted_pictures(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="oracle fake:oracle's scores are not finite"):
        protocols.run(squares.spec(), tmp_path / "run", given=squares.make_parts(oracle=Lost()))


def test_an_oracle_of_edits(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="oracle object:sure's scores are not finite"):
        protocols.run(pets.spec(limit=2), tmp_path / "run", given=pets.make_parts(oracle=Lost()))


def test_a_model_asked_about_edits(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="model python:here:Leaning: its scores are not finite"):
        protocols.run(pets.spec(limit=2), tmp_path / "run", given=pets.make_parts(model=Empty()))
