"""A run that is killed or damaged ends, once resumed, with the same content as one that never was."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun

from . import made
from .faults import Killed, mortal, truncate
from .made import CLASSES, PROVENANCE, SPEC, content, records

ROOT = Path(__file__).parents[2]
KILLS = 12
SHARED = b"the same image"


def child(path: Path, images: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.crash_child", str(path), str(images)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def write(path: Path, images: int, **options: Any) -> list[str]:
    return made.write(path, range(images), finish=True, **options)


def snapshot(path: Path) -> dict[str, Any]:
    """All that must not depend on what happened to a run on its way."""
    files = sorted(file.relative_to(path) for file in path.rglob("*.*") if file.suffix in (".png", ".tmp"))
    return {**content(store.open_run(path)), "results": (path / "results.json").read_bytes(), "files": files}


def same(path: Path, other: Path) -> None:
    assert snapshot(path) == snapshot(other)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    images, killed = 180, 0
    moments = random.Random(0)
    path = tmp_path / "killed"
    for _ in range(KILLS):
        process = child(path, images)
        for _ in range(moments.randrange(16)):
            process.stdout.readline()
        time.sleep(moments.uniform(0.0, 0.02))  # the line is read between two images; the kill may fall anywhere
        process.kill()
        process.stdout.close()
        killed += process.wait() == -9
        store.open_run(path)  # whatever happened, what is committed can be read
    assert killed == KILLS, "the child finished before it could be killed: give it more images"
    assert 0 < store.open_run(path).counts["images"] < images
    process = child(path, images)
    process.communicate()
    assert process.returncode == 0
    write(tmp_path / "whole", images)
    same(path, tmp_path / "whole")


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    process = child(tmp_path / "run", 100_000)
    try:
        process.stdout.readline()
        with pytest.raises(BadRun, match=f"process {process.pid} on"):
            write(tmp_path / "run", 3)
    finally:
        process.kill()
        process.communicate()
    with store.write(tmp_path / "run", SPEC, CLASSES, PROVENANCE) as writer:
        assert writer.notes == []


ORPHAN = """
import os, signal, sys
from counterfoil import store
with store.write(sys.argv[1], {}, [], {}):
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()  # lives on until the test closes the pipe
        os._exit(0)
    signal.pause()
"""


def test_a_worker_that_outlives_a_killed_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "forked\n"
    process.kill()
    process.wait()
    with store.write(tmp_path / "run", {}, [], {}) as writer:
        assert writer.counts["images"] == 0
    process.stdin.close()
    assert process.stdout.read() == ""  # the worker was there all along, and is gone now


def _alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("table", ["trials", "predictions", "verdicts"])
@pytest.mark.parametrize("damage", [truncate, _alter, Path.unlink])
def test_a_damaged_table_is_noticed_and_redone(tmp_path: Path, table: str, damage) -> None:
    write(tmp_path / "run", 13)
    write(tmp_path / "whole", 13)
    file = tmp_path / "run" / table / "000001.parquet"
    damage(file)
    if damage is not _alter:  # an altered byte is found by its hash, which readers don't compute
        with pytest.raises(BadRun, match="damaged or missing"):
            store.open_run(tmp_path / "run")
    notes = write(tmp_path / "run", 13)
    assert len(notes) == 1
    assert f"{table}/000001.parquet" in notes[0]
    same(tmp_path / "run", tmp_path / "whole")


def test_a_damaged_manifest_is_noticed_and_redone(tmp_path: Path) -> None:
    write(tmp_path / "whole", 13)
    for damage in (truncate, Path.unlink, lambda path: path.write_text("null")):
        write(tmp_path / "run", 13)
        damage(tmp_path / "run" / "chunks" / "000002.json")
        write(tmp_path / "run", 13)
        same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_damaged_image_is_noticed_and_redone(tmp_path: Path, damage) -> None:
    write(tmp_path / "run", 13)
    write(tmp_path / "whole", 13)
    run = store.open_run(tmp_path / "run")
    image = next(run.picture(trial) for trial in run.trials if trial.image)
    damage(image.path)
    notes = write(tmp_path / "run", 13)
    assert len(notes) == 1
    assert image.name in notes[0]
    same(tmp_path / "run", tmp_path / "whole")


def test_an_image_that_two_chunks_share_outlives_one_of_them(tmp_path: Path) -> None:
    trials = [replace(records(number)[0][0], image=store.image_name(SHARED)) for number in (0, 1, 2)]
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, chunk_images=1) as writer:
        for trial in trials:
            writer.add([trial], images=[SHARED])
    truncate(tmp_path / "trials" / "000001.parquet")
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        assert [trial.image_id in writer.done for trial in trials] == [True, False, True]
        writer.add([trials[1]], images=[SHARED])
    run = store.open_run(tmp_path)
    assert {run.picture(trial).read_bytes() for trial in run.trials} == {SHARED}
    assert run.counts["images"] == 3


def test_a_damaged_later_chunk_costs_only_what_was_added_later(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run = store.open_run(tmp_path)
    run.append(predictions=[next(run.predictions())])
    truncate(tmp_path / "predictions" / "000002.parquet")
    assert "chunk 2 dropped" in write(tmp_path, 5)[0]
    assert store.open_run(tmp_path).counts["images"] == 5


def test_killed_before_each_single_change_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = 3
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and no protection against what is tried here
    with monkeypatch.context() as patch:
        changes = mortal(patch, after=10**9)
        write(tmp_path / "whole", images, chunk_images=2)
    assert changes[0] > 40
    whole = snapshot(tmp_path / "whole")
    for after in range(changes[0]):
        path = tmp_path / str(after)
        for sitting in (after, 1 + after % 17):  # killed again soon after it was resumed
            with monkeypatch.context() as patch:
                mortal(patch, after=sitting)
                with contextlib.suppress(Killed):
                    write(path, images, chunk_images=2)
            if (path / "run.json").exists():
                store.open_run(path)
        assert write(path, images) == []  # being killed is not damage
        assert snapshot(path) == whole
