"""The instrument reads known weights right: a model that leans on a shortcut keeps less, where the shortcut is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import spec as specs
from counterfoil.metrics.estimate import Estimate
from counterfoil.protocols import fmr


def kept(model: str, folder: Path) -> Estimate:
    """FMR on scenes in which neither background nor colour says anything about the garment."""
    data = {"name": "lab:wardrobe", "count": 16, "distribution": "full", "seed": 3}
    values = {"model": model, "data": data, "generator": "lab:kl", "oracle": "lab:clip", "search": {"control": False}}
    return fmr.run(specs.parse(values), folder / model.replace(":", "-")).scores["FMR"]


@pytest.mark.xdist_group("instrument")
def test_a_broken_shortcut_costs_the_model_that_took_it(tmp_path: Path) -> None:
    flawed, diverse = kept("lab:background-shortcut", tmp_path), kept("lab:diverse", tmp_path)
    assert flawed.value is not None
    assert diverse.value is not None
    assert flawed.value < diverse.value
