"""The executor of a run. It is no part of the specification, as it decides no more than a number's last digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from counterfoil.core.errors import BadSpec, UsageError

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Execution:
    """The executor by name, and what it has to be told."""

    executor: str = "local"
    workers: int | None = None  # of ray: by default one per GPU, or one per core
    address: str | None = None  # of ray: a cluster that is there; by default one is started on this machine
    threads: int | None = None  # of a process that computes on a CPU: by default all cores, or a worker's share of them

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise UsageError(f"no executor named {self.executor!r}; there are {', '.join(EXECUTORS)}")
        for name, number in (("worker", self.workers), ("thread", self.threads)):
            if number is not None and number < 1:
                raise UsageError(f"a run needs at least one {name}, got {number}; leave --{name}s out for the most")
        if self.executor == "local" and (self.workers is not None or self.address is not None):
            raise UsageError("--workers and --ray-address need --executor ray; the local executor is this process alone")

    @classmethod
    def of(cls, written: Any, **given: Any) -> Execution:
        """From the section `execution` of a specification's file, if there is one, and what was given in addition."""
        known = [each.name for each in fields(cls)]
        if written is not None and not (isinstance(written, Mapping) and set(written) <= set(known)):
            raise BadSpec(f"execution: keys are {', '.join(known)}, got {written!r}")
        values = {**(written or {}), **{name: value for name, value in given.items() if value is not None}}
        if not all(type(value) is (int if name in ("workers", "threads") else str) for name, value in values.items()):
            raise BadSpec(f"execution: workers and threads are numbers, executor and address are words, got {values!r}")
        return cls(**values)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """For what this process computes itself: with as many threads as asked for."""
        import torch

        before = torch.get_num_threads()
        if self.threads is not None and self.executor == "local":
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


LOCAL = Execution()
