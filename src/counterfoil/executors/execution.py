"""Where a run's work is to be done. Not part of its specification, as it decides no number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from counterfoil.errors import BadSpec, UsageError

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Execution:
    """The executor by name, and what it has to be told."""

    executor: str = "local"
    workers: int | None = None  # of ray: by default one a GPU, or one a core
    address: str | None = None  # of ray: a cluster that is there; by default one is started on this machine

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise UsageError(f"no executor named {self.executor!r}; there are {', '.join(EXECUTORS)}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"a run needs at least one worker, got {self.workers}; leave --workers out for one a GPU or core")
        if self.executor == "local" and (self.workers is not None or self.address is not None):
            raise UsageError("--workers and --ray-address need --executor ray; the local executor is this process alone")

    @classmethod
    def of(cls, written: Any, **given: Any) -> Execution:
        """From the section `execution` of a specification's file, if there is one, and what was given beside it."""
        known = [each.name for each in fields(cls)]
        if written is not None and not (isinstance(written, Mapping) and set(written) <= set(known)):
            raise BadSpec(f"execution: keys are {', '.join(known)}, got {written!r}")
        values = {**(written or {}), **{name: value for name, value in given.items() if value is not None}}
        if not all(isinstance(value, int if name == "workers" else str) for name, value in values.items()):
            raise BadSpec(f"execution: workers is a number, executor and address are words, got {values!r}")
        return cls(**values)


LOCAL = Execution()
