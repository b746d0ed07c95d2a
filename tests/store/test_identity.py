"""Only the run it belongs to resumes a folder: specification, classes and weights must be the same."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun, BadSpec
from counterfoil.store import files
from counterfoil.store.chunks import numbers

from .made import CLASSES, PROVENANCE, SPEC, every_file, fill, write


def test_another_specification_is_refused_by_its_first_differing_keys(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    before = every_file(tmp_path)
    other = {**SPEC, "seed": 1, "search": {"budget": 50, "step": 0.01}}
    with pytest.raises(BadRun, match=r"seed 0, now 1; search.budget 2, now 50; choose another --out"):
        store.write(tmp_path, other, CLASSES, PROVENANCE).__enter__()
    with pytest.raises(BadRun, match='class 1 "bee", now "wasp"'):
        store.write(tmp_path, SPEC, ("ant", "wasp", "cat"), PROVENANCE).__enter__()
    assert every_file(tmp_path) == before


def test_keys_that_change_no_number_may_differ(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    other = {**SPEC, "device": "cuda", "engine": {"slots": 1, "precision": "float32"}}
    with store.write(tmp_path, other, CLASSES, PROVENANCE) as writer:
        assert writer.counts["images"] == 2
    with pytest.raises(BadRun, match=r"engine\.precision"):
        store.write(tmp_path, {**SPEC, "engine": {"slots": 32, "precision": "bfloat16"}}, CLASSES, PROVENANCE).__enter__()


def test_development_versions_of_one_release_are_no_difference(tmp_path: Path) -> None:
    """An untagged checkout has another version at each commit; the hash of the code tells whether anything changed."""
    began, later, next_release = (
        {**PROVENANCE, "versions": {"counterfoil": version}} for version in ("0.2.dev3+g1a2b3c4", "0.2.dev9+g5d6e7f8", "0.3")
    )
    with store.write(tmp_path, SPEC, CLASSES, began) as writer:
        fill(writer, range(2))
    with store.write(tmp_path, SPEC, CLASSES, later) as writer:
        assert writer.notes == []
    assert not store.open_run(tmp_path).resumed
    with store.write(tmp_path, SPEC, CLASSES, next_release) as writer:
        assert "counterfoil" in writer.notes[0]


def test_other_versions_are_noted_and_recorded_but_other_weights_refused(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    newer = {**PROVENANCE, "versions": {"numpy": "2.4"}}
    for _ in range(2):
        with store.write(tmp_path, SPEC, CLASSES, newer) as writer:
            assert writer.notes == ['resumed with versions.numpy "2.0", now "2.4"']
    run = store.open_run(tmp_path)
    assert (run.provenance, list(run.resumed)) == (PROVENANCE, [newer])
    for changed in ({"parts": {"model": {"weights": "w2"}}}, {"data": "d2"}):
        with pytest.raises(BadRun, match="now"):
            store.write(tmp_path, SPEC, CLASSES, {**PROVENANCE, **changed}).__enter__()


def test_a_part_with_dots_in_its_name_is_told_with_what_has_changed(tmp_path: Path) -> None:
    before, now = ({**PROVENANCE, "parts": {"timm:resnet50.a1_in1k": {"weights": weights}}} for weights in ("one", "two"))
    with store.write(tmp_path, SPEC, CLASSES, before) as writer:
        fill(writer, range(2))
    with pytest.raises(BadRun, match=r'parts\.timm:resnet50\.a1_in1k\.weights "one", now "two"'):
        store.write(tmp_path, SPEC, CLASSES, now).__enter__()


@pytest.mark.parametrize("name", ["mask", "style images"])
def test_files_of_other_content_that_decide_the_pictures_are_refused(tmp_path: Path, name: str) -> None:
    before, now = ({**PROVENANCE, "parts": {"generator": {name: digest, "library": digest}}} for digest in ("one", "two"))
    with store.write(tmp_path, SPEC, CLASSES, before) as writer:
        fill(writer, range(2))
    with pytest.raises(BadRun, match=f'parts.generator.{name} "one", now "two"'):
        store.write(tmp_path, SPEC, CLASSES, now).__enter__()


def test_a_specification_must_be_plain(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="data: object"):
        store.write(tmp_path / "run", {"data": object()}, CLASSES, PROVENANCE).__enter__()
    assert not (tmp_path / "run").exists()


def test_folders_that_are_not_runs_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(BadRun, match=r"not empty and not a run directory \(it has thesis.tex\)"):
        store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
    with pytest.raises(BadRun, match="is a file"):
        store.write(tmp_path / "thesis.tex", SPEC, CLASSES, PROVENANCE).__enter__()
    assert every_file(tmp_path) == {"thesis.tex"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 2}', "another version of Counterfoil .schema 2, this one reads 3.; make the run again"),
        ('{"schema": 99}', "another version of Counterfoil"),
        ("{", "damaged"),
        ('{"schema": 3}', "damaged"),
        ("[]", "damaged"),
        ('{"schema": 3, "spec": null, "classes": [], "provenance": {}, "resumed": []}', "damaged"),
        ('{"schema": 3, "spec": {}, "classes": [1], "provenance": {}, "resumed": []}', "damaged"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_a_run_file_this_program_cannot_read(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, range(2))
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadRun, match=message):
        store.open_run(tmp_path)
    with pytest.raises(BadRun, match=message):
        store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
    assert numbers(tmp_path) == [0]


def test_another_specification_or_a_writer_at_work_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    store.check(tmp_path / "new", SPEC)
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(2))
        with pytest.raises(BadRun, match=f"process {os.getpid()} on .* is writing here"):
            store.check(tmp_path, SPEC)
    store.check(tmp_path, {**SPEC, "device": "cuda"})
    with pytest.raises(BadRun, match="seed 0, now 1; choose another --out"):
        store.check(tmp_path, {**SPEC, "seed": 1})


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="not text in UTF-8"):
        store.write(tmp_path / "run", {**SPEC, "model": "\ud83d"}, CLASSES, PROVENANCE).__enter__()
    assert not (tmp_path / "run").exists()


def test_whether_a_run_is_being_written_can_be_asked_without_being_in_the_way(tmp_path: Path) -> None:
    assert not files.is_locked(tmp_path)
    write(tmp_path, range(1))
    assert not files.is_locked(tmp_path)
    with files.hold(tmp_path):
        assert files.is_locked(tmp_path)
    asking = os.open(tmp_path / files.LOCK, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    threading.Timer(0.01, os.close, [asking]).start()
    with files.hold(tmp_path):  # who asks holds it for a moment
        assert files.is_locked(tmp_path)
    assert not files.is_locked(tmp_path)


def test_what_assembling_fills_in_may_be_left_open(tmp_path: Path) -> None:
    with store.write(tmp_path, {**SPEC, "search": {"step": 0.1, "budget": 3}}, CLASSES, PROVENANCE):
        pass
    store.check(tmp_path, {**SPEC, "search": {"step": None, "budget": 3}})
    with pytest.raises(BadRun, match="step"):
        store.check(tmp_path, {**SPEC, "search": {"step": 0.2, "budget": 3}})
    with pytest.raises(BadRun, match="budget"):
        store.check(tmp_path, {**SPEC, "search": {"step": None, "budget": None}})
