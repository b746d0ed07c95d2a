"""Many studies in one sitting, in one process or several side by side, sharing their runs.

On a processor, two studies side by side with a thread each get more done than one with two threads; on a GPU they fill each
other's pauses.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from counterfoil.core.errors import CounterfoilError, RunFailed, one_line
from counterfoil.studies import runner
from counterfoil.studies.bench import Bench, Settings

LONGEST = ("variants", "augmentation", "sparse", "step-size", "transfer", "oracles")
"""What to begin with, so that no process is left alone with a long study at the end."""


@dataclass(frozen=True)
class Failed:
    """A study that could not be run, and why."""

    name: str
    problem: str

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.name}: could not be run"
        yield self.problem


Outcome = runner.Report | Failed


def run(names: Sequence[str], base: Settings, *, processes: int, bench: Bench | None = None) -> Iterator[Outcome]:
    """Every study's report as it is finished. One that cannot be run does not keep the others from it."""
    if processes == 1 or len(names) == 1:
        yield from (_one(name, base, bench or Bench(base)) for name in names)
        return
    order = [name for name in LONGEST if name in names]
    order += [name for name in names if name not in order]
    began = (base, uuid.uuid4().hex, max(1, cores() // processes))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin, initargs=began) as pool:
        waiting = {pool.submit(_in_worker, name): name for name in order}
        try:
            for each in as_completed(waiting):
                yield _result(each, waiting[each])
        finally:
            for each in waiting:
                each.cancel()


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_processes(device: str) -> int:
    """Two side by side on a processor, four on a GPU, and never more than there are cores."""
    return min(2 if device == "cpu" else 4, cores())


def _one(name: str, base: Settings, bench: Bench) -> Outcome:
    try:
        return runner.run(name, base, bench)
    except CounterfoilError as error:
        return Failed(name, str(error))


_worker: list[tuple[Settings, Bench]] = []  # of this process, once it has begun


def _begin(base: Settings, sitting: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    _worker.append((base, Bench(base, sitting=sitting)))


def _in_worker(name: str) -> Outcome:
    base, bench = _worker[0]
    return _one(name, base, bench)


def _result(finished: Any, name: str) -> Outcome:
    """A worker that died takes its study with it, not its cause: that is in what it wrote to the terminal."""
    try:
        outcome: Outcome = finished.result()
        return outcome
    except (OSError, RuntimeError) as error:
        failure = RunFailed(f"{name}: the process that ran it ended ({one_line(error)}); try --processes 1")
        return Failed(name, str(failure))
