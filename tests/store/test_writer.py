"""Written records can be read again, in chunks of the size asked for, by one writer at a time, and after an interruption."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.errors import BadData, BadRun
from counterfoil.core.records import Trial
from counterfoil.store import writer as writer_module
from counterfoil.store.chunks import Chunk

from .made import CLASSES, PROVENANCE, SPEC, content, every_file, expected_content, fill, holds, image_id, records, write


def wait_for(what: Callable[[], bool]) -> None:
    """However long the machine takes."""
    while not what():
        time.sleep(0.01)


def write_and_fail(path: Path, numbers: range, error: BaseException) -> None:
    with store.write(path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, numbers)
        raise error


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "run", range(23))
    run = store.open_run(tmp_path / "run")
    found = content(run)
    wanted = expected_content(range(23))
    assert {name: found[name] for name in wanted} == wanted
    stored = {trial.trial_id: trial for trial in found["trials"]}
    for number in range(23):
        trials, _, _, images = records(number)
        known = {store.image_name(png): png for png in images}
        for trial in trials:
            found = stored.pop(trial.trial_id)
            png = known.get(trial.image, b"")
            assert found.image_sha256 == (hashlib.sha256(png).hexdigest() if png else "")
            assert found.image_bytes == len(png)
            assert dataclasses.replace(found, image_sha256="", image_bytes=0) == trial
    assert not stored
    assert run.counts == {"images": 23, "accepted": sum(n % 11 != 10 and n % 5 != 4 for n in range(23)), "skipped": 2}


def test_chunks_hold_the_number_of_images_asked_for(tmp_path: Path) -> None:
    write(tmp_path, range(10), chunk_images=4)
    assert [chunk.images for chunk in store.open_run(tmp_path).chunks()] == [4, 4, 2]


def test_resuming_adds_only_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        assert writer.counts == {"images": 10, "accepted": 8, "skipped": 0}
        assert image_id(9) in writer.done
        assert image_id(10) not in writer.done
        assert len(writer.done) == 10
        fill(writer, range(20))
        assert writer.counts["images"] == 20
        assert writer.notes == []
    run = store.open_run(tmp_path)
    assert holds(run, range(20))


def test_images_belong_to_the_trials_that_name_them(tmp_path: Path) -> None:
    clean, made = store.image_name(b"clean"), store.image_name(b"made")
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        writer.add([Trial("a", "guided", 0, 1, "budget", 1, 2, clean=clean, image=made)], images=[b"made", b"clean", b"stray"])
        writer.add([Trial("b", "guided", 0, 1, "unvalidated", 0, 1, clean=clean)])  # an image that is there already
        with pytest.raises(ValueError, match="was not given with its trial"):
            writer.add([Trial("c", "guided", 0, 1, "budget", 1, 2, image=store.image_name(b"never"))])
        with pytest.raises(BadRun, match="outside the run"):
            writer.add([Trial("c", "guided", 0, 1, "budget", 1, 2, image="images/../../secret.png")])
    run = store.open_run(tmp_path)
    first, second = run.trials
    assert run.picture(first).read_bytes() == b"made"
    assert run.picture(second, "clean").read_bytes() == b"clean"
    assert (first.image_bytes, second.image) == (4, "")
    assert len(list(tmp_path.rglob("*.png"))) == 2
    with pytest.raises(BadRun, match="has no made"):
        run.picture(second)


def test_a_finished_image_is_committed_though_no_other_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "COMMIT_AFTER", 0.0)
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        for number in range(3):
            fill(writer, range(number + 1))
            wait_for(lambda number=number: store.open_run(tmp_path).counts["images"] == number + 1)
        assert [chunk.images for chunk in store.open_run(tmp_path).chunks()] == [1, 1, 1]
    monkeypatch.setattr(writer_module, "COMMIT_AFTER", 1e6)
    write(tmp_path, range(6))
    assert holds(store.open_run(tmp_path), range(6))


def test_a_late_commit_that_fails_ends_the_run_at_the_next_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "COMMIT_AFTER", 0.0)
    failed = threading.Event()

    def fail(*arguments: object, **options: object) -> None:
        failed.set()
        raise BadRun("no space")

    def run() -> None:
        with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer, monkeypatch.context() as patch:
            patch.setattr(Chunk, "commit", fail)
            fill(writer, range(1))
            assert failed.wait(60)
            fill(writer, range(1, 3))

    with pytest.raises(BadRun, match="no space"):
        run()
    assert store.open_run(tmp_path).counts["images"] == 1  # it was committed once that was possible


def test_add_refuses_records_that_do_not_belong_together(tmp_path: Path) -> None:
    one, other = records(0), records(1)
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        with pytest.raises(ValueError, match="one image at a time"):
            writer.add([*one[0], *other[0]], [], [])
        with pytest.raises(ValueError, match="do not fit"):
            writer.add(one[0], other[1], [])
        with pytest.raises(ValueError, match="do not fit"):
            writer.add([one[0][0], one[0][0]], [], [])
        writer.add(*one)
        with pytest.raises(BadData, match="occurs twice"):
            writer.add(*one)


def test_an_exception_keeps_what_is_complete_and_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path, range(3), KeyboardInterrupt())
    run = store.open_run(tmp_path)
    assert len({trial.image_id for trial in run.trials}) == 3
    assert len([name for name in every_file(tmp_path) if name.startswith("images/")]) == len(expected_content(range(3))["images"])
    write(tmp_path, range(6))
    assert run.counts["images"] == 6  # an open run sees chunks that come later


def test_an_exception_before_any_image_leaves_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "not" / "yet" / "there", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(RuntimeError, match="oracle"):
            write_and_fail(path, range(0), RuntimeError("oracle"))
    assert [each.name for each in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(2))
        with pytest.raises(BadRun, match=rf"process {os.getpid()} on .* is writing here"):
            store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
        writer.flush()
        run = store.open_run(tmp_path)  # readers are let in
        assert run.counts["images"] == 2
        with pytest.raises(BadRun, match="is writing here"):
            run.append(predictions=records(0)[1])
    run.append(predictions=records(0)[1])
