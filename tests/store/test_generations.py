"""Trials made from tables that can change: those before stay readable until the new ones are complete."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.records import Prediction, Verdict
from counterfoil.store import Writer

from .made import CLASSES, PROVENANCE, SPEC, content, every_file, fill, image_id, records


def write_generation(
    path: Path, mark: str, numbers: range, *, other: int | None = None, dropped: Counter | None = None
) -> store.Run:
    """A run of some images; the generated image of `other` is not what it usually is."""
    with store.write(path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation(mark)
        _redrawn(writer, other)
        fill(writer, numbers)
        found = writer.switch()
        store.open_run(path)  # what is committed can be read
        if dropped is not None:
            dropped.update(found)
        writer.finish({})
    return store.open_run(path)


def _redrawn(writer: Writer, number: int | None) -> None:
    if number is not None and image_id(number) not in writer.done:
        trials, predictions, verdicts, images = records(number)
        others = [b"another image " + png for png in images]
        renamed = dict(zip(map(store.image_name, images), map(store.image_name, others), strict=True))
        writer.add([replace(each, image=renamed.get(each.image, "")) for each in trials], predictions, verdicts, others)


def trial(number: int) -> str:
    return f"{image_id(number)}#guided"


def prediction(number: int, model: str = "later") -> Prediction:
    return Prediction(trial(number), "made", model, 0, True, 0.9, 0.9)


def verdict(number: int, oracle: str, keeps: bool = False) -> Verdict:
    return Verdict(trial(number), "made", oracle, keeps, 0.0, -1)


def test_another_mark_replaces_what_was_derived_and_keeps_what_was_said_of_the_same_pictures(tmp_path: Path) -> None:
    first = write_generation(tmp_path, "one", range(10))
    first.append(predictions=[prediction(0), prediction(1), prediction(8)], verdicts=[verdict(1, "human"), verdict(2, "human")])
    first.append(predictions=[prediction(3)])
    dropped: Counter = Counter()
    second = write_generation(tmp_path, "two", range(6), other=1, dropped=dropped)
    assert {trial.image_id for trial in second.trials} == {image_id(number) for number in range(6)}
    assert second.counts["images"] == 6
    assert list(second.predictions("later")) == [prediction(0), prediction(3)]  # 1 has another image, 8 has none
    assert list(second.verdicts("human")) == [verdict(2, "human")]
    assert dropped == {("model", "later"): 2, ("oracle", "human"): 1}
    assert not [name for name in every_file(tmp_path) if name.endswith(".tmp")]
    assert {chunk.mark for chunk in second.chunks()} == {"two"}


def test_what_was_said_later_holds_also_over_trials_that_are_written_anew(tmp_path: Path) -> None:
    run = write_generation(tmp_path, "one", range(3))
    run.append(verdicts=[verdict(0, "clip:o", keeps=False)])
    for mark in ("one", "two"):
        found = [
            each.keeps_label
            for each in write_generation(tmp_path, mark, range(3)).verdicts("clip:o")
            if each.trial_id == trial(0)
        ]
        assert found[-1] is False


def test_an_account_of_a_review_goes_with_the_verdicts_that_it_counts(tmp_path: Path) -> None:
    write_generation(tmp_path, "one", range(4)).append(verdicts=[verdict(1, "human"), verdict(2, "clip:o")])
    account = tmp_path / "review.json"
    account.write_text("{}")
    write_generation(tmp_path, "two", range(4), other=2)
    assert account.exists()
    write_generation(tmp_path, "three", range(4), other=1)
    assert not account.exists()


def test_what_was_there_stays_readable_until_the_new_trials_are_complete(tmp_path: Path) -> None:
    first = write_generation(tmp_path, "one", range(6))
    first.append(predictions=[prediction(0), prediction(1)])
    before = content(first)
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("two")
        _redrawn(writer, 1)
    run = store.open_run(tmp_path)
    assert content(run) == before and run.results == {} and run.counts["images"] == 6
    run.append(predictions=[prediction(1, "in between"), prediction(2, "in between")])
    finished = write_generation(tmp_path, "two", range(6), other=1)
    assert list(finished.predictions("later")) == [prediction(0)]
    assert list(finished.predictions("in between")) == [prediction(2, "in between")]  # 1 had another image then


def test_tables_that_are_as_before_again_cost_nothing(tmp_path: Path) -> None:
    before = content(write_generation(tmp_path, "one", range(6)))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("two")
        fill(writer, range(5))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("one")
        assert all(image_id(number) in writer.done for number in range(6))
        assert not writer.switch()
    assert content(store.open_run(tmp_path)) == before
    assert {chunk.mark for chunk in store.open_run(tmp_path).chunks()} == {"one"}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("call", ["replace", "unlink"])
def test_a_writer_killed_at_any_moment_keeps_what_was_said_of_the_same_pictures(tmp_path: Path, monkeypatch, call: str) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # quicker, and no power is cut here
    run = write_generation(tmp_path / "before", "one", range(3))
    run.append(predictions=[prediction(0), prediction(1)], verdicts=[verdict(2, "human")])
    run.append(verdicts=[verdict(2, "human", keeps=True), verdict(1, "human")])
    real, moment, killed = getattr(os, call), 0, True
    while killed:
        path = shutil.copytree(tmp_path / "before", tmp_path / str(moment))
        left = moment

        def count_down(*arguments, **options):
            nonlocal left
            if left == 0:
                raise Killed  # nothing more happens on this disk
            left -= 1
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, count_down)
            try:
                write_generation(path, "two", range(3), other=1)
                killed = False
            except Killed:
                pass
        finished = write_generation(path, "two", range(3), other=1)
        assert list(finished.predictions("later")) == [prediction(0)]
        assert list(finished.verdicts("human")) == [verdict(2, "human"), verdict(2, "human", keeps=True)]
        moment += 1
    assert moment > 8


def test_the_same_mark_goes_on_where_it_was(tmp_path: Path) -> None:
    write_generation(tmp_path, "one", range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("one")
        assert all(image_id(number) in writer.done for number in range(10))
        assert writer.counts["images"] == 10


def test_a_new_generation_that_was_interrupted_resumes(tmp_path: Path) -> None:
    write_generation(tmp_path, "one", range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("two")
        fill(writer, range(5))
    assert store.open_run(tmp_path).results == {}
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=4) as writer:
        writer.generation("two")
        assert sum(image_id(number) in writer.done for number in range(10)) == 5
        assert writer.counts["images"] == 5
