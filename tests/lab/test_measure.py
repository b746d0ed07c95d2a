"""Measuring models that lie elsewhere than in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import BadData
from counterfoil.lab.measure import WEIGHTS, Bench, measure


def test_a_model_is_looked_for_in_the_folder_first_and_its_judges_in_the_package(tmp_path: Path) -> None:
    (tmp_path / "diverse").mkdir()
    bench = Bench(weights=tmp_path)
    assert bench.folder("diverse") == tmp_path / "diverse"
    assert bench.folder("diffusion", "vae") == WEIGHTS / "diffusion" / "vae"


def test_a_model_that_is_not_there_is_not_replaced_by_the_one_that_ships(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no model in a folder diverse"):
        measure(Bench(weights=tmp_path), "diverse")
