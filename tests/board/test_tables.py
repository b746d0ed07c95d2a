"""Tables: one a test, with ranks no finer than the images allow, and marks where a reader must know more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Prediction
from counterfoil.report.board import Entry, entries_of
from counterfoil.report.board.page import headings, machine, parameters, speed
from counterfoil.report.board.tables import tables
from counterfoil.store import open_run
from counterfoil.store.later import Asked, record
from tests.cli.stored import stored


def entry(path: Path, model: str, kept: float, **spec: object) -> Entry:
    (found,) = entries_of(open_run(stored(path / model.replace(":", "-"), model, kept=kept, images=90, **spec)))  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """One model that keeps nearly all, and two that keep about a third."""
    path = tmp_path_factory.mktemp("runs")
    return [entry(path, "a", 0.3), entry(path, "b", 0.95), entry(path, "c", 0.33)]


def test_ranks_are_ranges_where_models_cannot_be_told_apart(three: list[Entry]) -> None:
    (table,) = tables(three, {})
    assert {row.label: row.rank("FMR_matched") for row in table.rows} == {"b": "1", "a": "2–3", "c": "2–3"}
    assert table.rows[0].label == "b"
    assert table.images == 90


def test_another_step_is_another_test(three: list[Entry], tmp_path: Path) -> None:
    other = entry(tmp_path, "d", 0.5, search={"step": 0.5})
    first, second = tables([*three, other], {})
    assert [len(first.rows), len(second.rows)] == [3, 1]
    assert second.rows[0].rank("FMR") == "–"
    assert second.note


def test_tests_with_the_same_parts_are_told_apart_in_their_headings(three: list[Entry], tmp_path: Path) -> None:
    other = entry(tmp_path, "d", 0.5, search={"step": 0.5})
    found = tables([*three, other], {})
    first, second = (headings(found)[table.identity] for table in found)
    assert first.rpartition(" · ")[0] == second.rpartition(" · ")[0] == headings(found[:1])[found[0].identity]
    assert second.endswith("search.step 0.5") and not first.endswith("0.5")


def test_other_pictures_are_not_paired(three: list[Entry], tmp_path: Path) -> None:
    (table,) = tables([three[0], entry(tmp_path, "d", 0.5, pixels="q")], {})
    assert table.images == 0
    assert "no image in common" in table.note


def test_the_same_result_twice_is_refused(three: list[Entry]) -> None:
    with pytest.raises(UsageError, match="twice"):
        tables([*three, three[0]], {})


def test_two_results_of_one_model_are_told_apart(three: list[Entry]) -> None:
    again = three[0].model_copy(update={"model": three[0].model.model_copy(update={"weights": "a" * 64})})
    (table,) = tables([three[0], again], {})
    assert len({row.label for row in table.rows}) == 2


def test_models_that_share_weights_with_the_oracle_are_marked(three: list[Entry]) -> None:
    forced = three[0].model_copy(update={"caution": "the oracle is not independent"})
    settings = {**three[1].test.settings, "oracle weights": "b" * 64}
    test = three[1].test.model_copy(update={"settings": settings})
    twin = three[1].model_copy(update={"test": test, "model": three[1].model.model_copy(update={"weights": "b" * 64})})
    marks = {row.label: row.marks for table in tables([forced, twin, three[2]], {}) for row in table.rows}
    assert marks == {"a": ("shares weights with the oracle",), "b": ("shares weights with the oracle",), "c": ()}


def test_on_a_fixed_set_the_model_it_was_made_against_is_marked(tmp_path: Path) -> None:
    run = open_run(stored(tmp_path / "run", "a", images=30))
    run.append(
        predictions=[
            Prediction(each.trial_id, each.picture, "python:b c", each.predicted, True, 0.5, 0.5) for each in run.predictions()
        ]
    )
    found = entries_of(open_run(run.path), scored=True)
    (table,) = tables(found, {})
    assert {row.label: row.marks for row in table.rows} == {"a": ("surrogate",), "python:b c": ()}
    assert table.rows[0].label == "python:b c"
    assert found[1].command.endswith("--out RUN && counterfoil score RUN --model 'python:b c'")
    assert table.identity != tables(entries_of(open_run(run.path)), {})[0].identity
    record(run.path, Asked("model", "python:b c", {}, "not independent: …"))
    marked = entries_of(open_run(run.path), scored=True)
    assert [entry.caution for entry in marked] == ["", "the model is not independent: …"]
    assert tables(marked, {})[0].rows[0].marks == ("shares weights with the oracle",)


def test_size_and_speed_come_from_the_run(tmp_path: Path) -> None:
    path = stored(tmp_path / "run", images=6)
    figures = {"parameters": 25_557_032, "images_per_second": 8.25, "batch": 8, "size": 64, "device": "cpu", "threads": 2}
    (path / "speed.json").write_text(json.dumps(figures))
    (table,) = tables(entries_of(open_run(path)), {})
    row = table.rows[0]
    assert (parameters(row), speed(row), machine(row)) == ("25.6 M", "8.2", "cpu, 2 threads, 8 at a time")
    (path / "speed.json").write_text("{")
    with pytest.raises(UsageError, match=r"speed\.json: damaged"):
        entries_of(open_run(path))
