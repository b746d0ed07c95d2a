"""The transfer matrix: cells, their differences from the diagonal, and degenerate ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterfoil import store
from counterfoil.protocols.fmr.transfer import tables_of, transfer, transfer_of
from counterfoil.studies.pooling import pool
from tests.cli.stored import store_run
from tests.metrics.made import outcomes


def test_a_cells_numbers_are_those_of_its_images() -> None:
    own = outcomes([1] * 8 + [0] * 2, [1] * 2 + [0] * 8, validated=[1] * 9 + [0], model="a")
    other = outcomes([1] * 10, [1] * 7 + [0] * 3, validated=[1] * 9 + [0], model="b")
    matrix = transfer({"a": {"a": own, "b": other}})
    on_itself, on_other = matrix.cell("a", "a"), matrix.cell("a", "b")
    assert on_itself is not None and on_other is not None
    assert on_itself.values["FMR"].value == pytest.approx(100 * (2 / 9) / (8 / 10))
    assert on_itself.values["harm"].value == pytest.approx(100 * (8 - 2) / 9)
    assert on_other.values["harm"].value == pytest.approx(100 * (9 - 7) / 9)
    assert on_other.values["spared"].value == pytest.approx(100 * (6 - 2) / 9)
    assert "spared" not in on_itself.values
    assert matrix.cell("b", "a") is None


def test_what_spares_a_model_is_paired_by_source_image() -> None:
    """Both models suffer on the same half of the images: unpaired, the difference would drown in that half's chance."""
    hurt = [1, 0] * 100
    one = outcomes([1] * 200, [0] * 200, model="a")
    two = outcomes([1] * 200, [1 - each for each in hurt], model="b")
    same = outcomes([1] * 200, [0] * 200, model="c")
    found = transfer({"a": {"a": one, "b": two, "c": same}})
    spared, none = found.cell("a", "b"), found.cell("a", "c")
    assert spared is not None and none is not None
    assert spared.values["spared"].value == 50
    assert none.values["spared"].value == 0


def test_nothing_accepted_and_nothing_right_are_said() -> None:
    nothing = outcomes([1, 1], [0, 0], validated=[0, 0], model="a")
    wrong = outcomes([0, 0], [0, 0], model="b")
    cell = transfer({"a": {"a": nothing}}).cell("a", "a")
    zero = transfer({"b": {"b": wrong}}).cell("b", "b")
    assert cell is not None and zero is not None
    assert (cell.values["harm"].value, cell.values["harm"].note) == (None, "no accepted image that the model was scored on")
    assert "SA is 0" in zero.values["FMR"].note


def test_runs_on_disk_and_models_scored_on_them(tmp_path: Path) -> None:
    first, second = store.open_run(store_run(tmp_path / "a", "m1")), store.open_run(store_run(tmp_path / "b", "m2"))
    first.append(predictions=[replace(each, model="m2") for each in first.predictions("m1")])
    matrix = transfer_of([first, second])
    assert (matrix.rows, matrix.columns) == (("m1", "m2"), ("m1", "m2"))
    again = matrix.cell("m1", "m2")
    assert again is not None and again.values["spared"].value == 0
    assert tables_of(matrix, ["FMR"])[0].rows[1][1] == "not scored"
    assert matrix.cells[0].made_against == "m1"
    assert np.isfinite(matrix.cells[0].values["FMR"].value)


def test_two_runs_against_one_model_are_two_rows(tmp_path: Path) -> None:
    runs = [store.open_run(store_run(tmp_path / name, "m")) for name in "ab"]
    assert transfer_of(runs).rows == ("m", "m (2)")
    assert transfer_of(runs, names=["m · a", "m · b"]).rows == ("m · a", "m · b")


def test_pooled_harm_draws_a_source_image_with_all_its_cells() -> None:
    one = outcomes([1] * 50, [0] * 50, model="a")
    half = outcomes([1] * 50, [1, 0] * 25, model="b")
    found = pool({"a": {"a": one, "b": half}, "b": {"b": one, "a": half}})
    assert (found["own"].value, found["others"].value, found["spared"].value) == (100, 50, 50)
    single = pool({"a": {"a": one, "b": half}})
    assert found["spared"].low == pytest.approx(single["spared"].low, abs=4)  # twice the cells, not twice the images
    assert "no accepted image" in pool({"a": {"a": one}})["others"].note
