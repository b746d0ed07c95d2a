"""The transfer matrix: cells, their differences from the diagonal, and degenerate ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterfoil import store
from counterfoil.metrics.observations import Observations
from counterfoil.protocols.fmr.results import observations_of
from counterfoil.protocols.fmr.transfer import EVERY, table_of, transfer, transfer_of
from counterfoil.studies.models import pool
from tests.cli.stored import store_run
from tests.metrics.made import outcomes


def observe(*columns: list[int], **more: Any) -> Observations:
    return observations_of(outcomes(*columns, **more))


def test_a_cells_numbers_are_those_of_its_images() -> None:
    own = observe([1] * 8 + [0] * 2, [1] * 2 + [0] * 8, validated=[1] * 9 + [0], model="a")
    other = observe([1] * 10, [1] * 7 + [0] * 3, validated=[1] * 9 + [0], model="b")
    matrix = transfer({"a": {"a": own, "b": other}})
    on_itself, on_other = matrix["a"]["a"], matrix["a"]["b"]
    assert on_itself["FMR"].value == pytest.approx(100 * (2 / 9) / (8 / 10))
    assert on_itself["harm"].value == pytest.approx(100 * (8 - 2) / 9)
    assert on_other["harm"].value == pytest.approx(100 * (9 - 7) / 9)
    assert on_other["spared"].value == pytest.approx(100 * (6 - 2) / 9)
    assert "spared" not in on_itself


def test_what_spares_a_model_is_paired_by_source_image() -> None:
    """Both models suffer on the same half of the images: unpaired, the difference would drown in that half's chance."""
    hurt = [1, 0] * 100
    one = observe([1] * 200, [0] * 200, model="a")
    two = observe([1] * 200, [1 - each for each in hurt], model="b")
    same = observe([1] * 200, [0] * 200, model="c")
    found = transfer({"a": {"a": one, "b": two, "c": same}})
    spared, none = found["a"]["b"], found["a"]["c"]
    assert spared["spared"].value == 50
    assert none["spared"].value == 0


def test_nothing_accepted_and_nothing_right_are_said() -> None:
    nothing = observe([1, 1], [0, 0], validated=[0, 0], model="a")
    wrong = observe([0, 0], [0, 0], model="b")
    cell = transfer({"a": {"a": nothing}})["a"]["a"]
    zero = transfer({"b": {"b": wrong}})["b"]["b"]
    assert (cell["harm"].value, cell["harm"].note) == (None, "no accepted image that the model was scored on")
    assert "SA is 0" in zero["FMR"].note


def test_runs_on_disk_and_models_scored_on_them(tmp_path: Path) -> None:
    first, second = store.open_run(store_run(tmp_path / "a", "m1")), store.open_run(store_run(tmp_path / "b", "m2"))
    first.append(predictions=[replace(each, model="m2") for each in first.predictions("m1")])
    matrix = transfer_of([first, second])
    assert {name: [*row] for name, row in matrix.items()} == {"m1": ["m1", "m2"], "m2": ["m2"]}
    assert matrix["m1"]["m2"]["spared"].value == 0
    assert table_of(matrix, "FMR").rows[1][1] == "not scored"
    assert np.isfinite(matrix["m1"]["m1"]["FMR"].value)


def test_two_runs_against_one_model_are_two_rows(tmp_path: Path) -> None:
    runs = [store.open_run(store_run(tmp_path / name, "m")) for name in "ab"]
    assert [*transfer_of(runs)] == ["m", "m (2)"]
    assert [*transfer_of(runs, names=["m · a", "m · b"])] == ["m · a", "m · b"]


def test_pooled_harm_draws_a_source_image_with_all_its_cells() -> None:
    harm = EVERY["harm"]
    one = observe([1] * 50, [0] * 50, model="a")
    half = observe([1] * 50, [1, 0] * 25, model="b")
    found = pool({"a": {"a": one, "b": half}, "b": {"b": one, "a": half}}, harm)
    assert [each.value for each in found.values()] == [100, 50, 50]
    single = pool({"a": {"a": one, "b": half}}, harm)
    assert found["difference"].low == pytest.approx(single["difference"].low, abs=4)  # twice the cells, not twice the images
    assert "no accepted image" in pool({"a": {"a": one}}, harm)["other models"].note
