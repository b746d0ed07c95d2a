"""A run that is killed at random moments and started again ends as if it had never been killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import pytest

from counterfoil import protocols, store
from counterfoil.core.errors import BadRun
from tests.protocols import killed_child
from tests.worlds import arrays, spec, values

KILLS = 12


def content(run: store.Run) -> tuple[bytes, list, list, list, dict[str, bytes]]:
    """Everything a run holds that may be compared."""
    pictures = {path.name: path.read_bytes() for path in (run.path / "images").rglob("*.png")}
    by_trial = [sorted(map(repr, rows)) for rows in (run.trials, run.predictions(), run.verdicts())]
    return ((run.path / "results.json").read_bytes(), *by_trial, pictures)


@pytest.fixture(scope="module")
def processes():
    """Child processes that have torch loaded already, so that a kill hits the run and not its imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.protocols.killed_child"])
    return context


def test_killed_a_dozen_times_it_ends_with_the_same_bytes(tmp_path, processes):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 120)}"
    settings = {"engine": {"slots": 8, "chunk_images": 8}}
    whole = protocols.run(spec(data, **settings), tmp_path / "whole")
    moments = random.Random(7)
    kills = 0
    for _ in range(100):
        begun = processes.Event()
        child = processes.Process(target=killed_child.run, args=(values(data, **settings), str(tmp_path / "killed"), 0.02, begun))
        child.start()
        assert begun.wait(60), "the run did not get under way"
        if kills < KILLS:
            child.join(moments.uniform(0.0, 0.35))
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
        child.join(60)
        if child.exitcode == 0:
            break
    assert kills >= 10
    assert child.exitcode == 0
    assert content(store.open_run(tmp_path / "killed")) == content(whole)


def test_layout_and_order_of_work_do_not_change_a_byte(tmp_path):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 30)}"
    runs = [
        protocols.run(spec(data, engine={"slots": slots, "chunk_images": part}), tmp_path / str(slots))
        for slots, part in ((1, 3), (32, 64))
    ]
    assert content(runs[0]) == content(runs[1])


@pytest.mark.parametrize("victim", ["trials/000001.parquet", "verdicts/000000.parquet", "images"])
def test_a_truncated_file_is_noticed_and_its_images_redone(tmp_path, victim):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 30)}"
    chosen = spec(data, engine={"chunk_images": 8})
    before = content(protocols.run(chosen, tmp_path / "run"))
    path = tmp_path / "run" / victim
    if path.is_dir():
        path = sorted(path.rglob("*.png"))[3]
    path.write_bytes(path.read_bytes()[:-7])
    assert content(protocols.run(chosen, tmp_path / "run")) == before


def test_a_second_run_into_the_same_directory_is_refused(tmp_path):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    with store.write(tmp_path / "run", spec={}, classes=["a", "b"], provenance={}), pytest.raises(BadRun, match="another"):
        protocols.run(spec(data), tmp_path / "run")


def test_a_finished_run_is_not_made_again(tmp_path):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    first = protocols.run(spec(data), tmp_path / "run")
    times = {path: path.stat().st_mtime_ns for path in (first.path / "trials").iterdir()}
    protocols.run(spec(data), tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in (first.path / "trials").iterdir()} == times


def test_another_specification_needs_another_directory(tmp_path):
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    protocols.run(spec(data), tmp_path / "run")
    with pytest.raises(BadRun, match="seed"):
        protocols.run(spec(data, seed=1), tmp_path / "run")
