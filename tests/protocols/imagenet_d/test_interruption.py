"""A run that is killed at random moments and started again ends as if it had never been killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest

from counterfoil import protocols, store
from tests.protocols.imagenet_d import killed_child
from tests.protocols.imagenet_d.world import make_parts, spec

KILLS = 8


@pytest.mark.xdist_group("killed imagenet-d")
def test_killed_again_and_again_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.protocols.imagenet_d.killed_child"])
    whole = protocols.run(spec(), tmp_path / "whole", given=make_parts())
    moments, kills = random.Random(3), 0
    for _ in range(60):
        begun = processes.Event()
        child = processes.Process(target=killed_child.run, args=(str(tmp_path / "killed"), 0.004, begun))
        child.start()
        assert begun.wait(120), "the run did not get under way"
        if kills < KILLS:
            child.join(moments.uniform(0.0, 0.9))
            if child.is_alive():
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
        child.join(120)
        if child.exitcode == 0:
            break
    assert child.exitcode == 0 and kills >= 5
    killed = store.open_run(tmp_path / "killed")
    assert (killed.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    for name in ("prompts", "paintings", "objects", "mined"):
        assert (killed.path / "stages" / f"{name}.jsonl").read_bytes() == (whole.path / "stages" / f"{name}.jsonl").read_bytes()
    assert {trial.trial_id: trial.image for trial in killed.trials} == {trial.trial_id: trial.image for trial in whole.trials}
