"""Rows that are added to a finished run: another model, another oracle, whole chunks or nothing; and the record of both."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Verdict
from counterfoil.store.later import ASKED, AskedPart, asked_of, record

from .faults import failing
from .made import every_file, expected_content, image_id, write


def test_another_model_and_oracle_can_be_added_later(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    run = store.open_run(tmp_path)
    predictions = [Prediction(trial.trial_id, "made", "timm:other", 0, False, 0.5, 0.2) for trial in run.trials if trial.image]
    verdicts = [Verdict(each.trial_id, "made", "people", None, 0.0, -1) for each in predictions]
    run.append(predictions=predictions, verdicts=verdicts)
    run.append()
    assert list(run.predictions("timm:other")) == predictions
    assert list(run.verdicts(oracle="people")) == verdicts
    assert {each.model for each in run.predictions()} == {"python:m", "timm:other"}
    assert len(list(run.predictions("python:m"))) == len(expected_content(range(5))["predictions"])
    assert run.counts["images"] == 5
    write(tmp_path, range(8))  # the run resumes and keeps them
    assert list(run.predictions("timm:other")) == predictions
    assert run.counts["images"] == 8


def test_rows_added_a_few_at_a_time_share_chunks(tmp_path: Path) -> None:
    write(tmp_path, range(4))
    run = store.open_run(tmp_path)
    rows = [Prediction(f"{number}#guided", "made", "timm:other", 0, True, 0.5, 0.5) for number in range(25)]
    with run.appending(chunk_rows=10) as more:
        for start in range(0, 25, 5):
            more.add(predictions=rows[start : start + 5])
        with pytest.raises(BadRun, match="is writing here"):
            run.append(predictions=rows)
    assert list(run.predictions("timm:other")) == rows
    assert [chunk.tables["predictions"].rows for chunk in run.chunks()][1:] == [10, 10, 5]


def test_rows_added_before_an_exception_are_kept_and_a_full_disk_leaves_none(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, range(4))
    run = store.open_run(tmp_path)
    row = Prediction(f"{image_id(0)}#guided", "made", "timm:other", 0, True, 0.5, 0.5)

    def fail() -> None:
        with run.appending() as more:
            more.add(predictions=[row])
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    assert list(run.predictions("timm:other")) == [row]
    before = every_file(tmp_path)
    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(getattr(os, call), errno.ENOSPC, after=1))
            with pytest.raises(BadRun, match="No space left"):
                run.append(predictions=[row], verdicts=[Verdict(row.trial_id, "made", "p", True, 1.0, 0)])
        assert every_file(tmp_path) == before


CLIP = AskedPart("oracle", "clip:b", {"weights": "a" * 64}, "not independent: …")
MODEL = AskedPart("model", "timm:a", {})


def test_a_part_is_entered_once_and_the_last_word_holds(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    assert asked_of(tmp_path) == []
    for part in (CLIP, MODEL, AskedPart("oracle", "clip:b", {"weights": "b" * 64})):
        record(tmp_path, part)
    assert asked_of(tmp_path) == [MODEL, AskedPart("oracle", "clip:b", {"weights": "b" * 64})]


def test_a_run_that_goes_on_keeps_it(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    record(tmp_path, CLIP)
    write(tmp_path, range(4))
    assert asked_of(tmp_path) == [CLIP]


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', '[{"role": "judge", "name": "", "provenance": {}, "caution": ""}]'])
def test_a_damaged_one_is_named_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / ASKED).write_text(content)
    with pytest.raises(BadRun, match=r"asked\.json: damaged .* delete it and ask again"):
        asked_of(tmp_path)
