"""Trials that are derived from tables which can change: dropped with the old mark, written under the new one."""

from __future__ import annotations

from pathlib import Path

from counterfoil import store
from counterfoil.records import Prediction

from .made import CLASSES, PROVENANCE, SPEC, fill, image_id


def written(path: Path, mark: str, numbers: range) -> store.Run:
    with store.write(path, SPEC, CLASSES, PROVENANCE, part_images=4) as writer:
        writer.begin(mark)
        fill(writer, numbers)
        writer.finish({})
    return store.open_run(path)


def test_another_mark_replaces_what_was_derived_and_keeps_what_was_said_later(tmp_path: Path) -> None:
    first = written(tmp_path, "one", range(10))
    said = Prediction(f"{image_id(0)}#guided", "made", "later", 0, True, 0.9, 0.9)
    first.append(predictions=[said])
    second = written(tmp_path, "two", range(6))
    assert {trial.image_id for trial in second.trials} == {image_id(number) for number in range(6)}
    assert list(second.predictions("later")) == [said]
    assert second.counts["images"] == 6


def test_the_same_mark_goes_on_where_it_was(tmp_path: Path) -> None:
    written(tmp_path, "one", range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, part_images=4) as writer:
        writer.begin("one")
        assert all(image_id(number) in writer.done for number in range(10))
        assert writer.counts["images"] == 10


def test_a_writer_that_stops_after_dropping_leaves_a_run_that_can_go_on(tmp_path: Path) -> None:
    written(tmp_path, "one", range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, part_images=4) as writer:
        writer.begin("two")
        fill(writer, range(5))
    assert store.open_run(tmp_path).results is None
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, part_images=4) as writer:
        writer.begin("two")
        assert sum(image_id(number) in writer.done for number in range(10)) == 5
