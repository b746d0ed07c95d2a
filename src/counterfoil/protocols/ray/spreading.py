"""A crew for a staged protocol, if the execution asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from counterfoil.core.spec import RunSpec
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.stages import Spread
from counterfoil.protocols.workspace import Given

AnySpec = TypeVar("AnySpec", bound=RunSpec)


@dataclass(frozen=True)
class Spreading:
    """Where the batches go, and what the workers say they are; nothing of both where all is done in this process."""

    spread: Spread | None = None
    account: Mapping[str, Any] | None = None  # of the parts


@contextmanager
def spreading(
    spec: RunSpec, out: Path, *, given: Given | None, execution: Execution, tell: Callable[[str], None]
) -> Iterator[Spreading]:
    """Workers for the batches of a run's stages, as long as the block lasts."""
    if execution.executor == "local":
        yield Spreading()
        return
    from counterfoil.protocols.ray.crew import Crew, Described
    from counterfoil.protocols.ray.ray import RayPool
    from counterfoil.protocols.ray.stages import CrewSpread, StageWorker

    with RayPool(execution, device=spec.device, tell=tell) as pool:
        pool.employ(StageWorker, spec, out.resolve(), threads=pool.threads, given=given)
        crew = Crew(pool, pool.workers, tell)
        about: Described = crew.start()
        yield Spreading(CrewSpread(crew), about.account)


def here(spec: AnySpec, execution: Execution) -> AnySpec:
    """The specification for this process's own parts: where workers have the GPUs, they stay off them."""
    return spec if execution.executor == "local" else spec.model_copy(update={"device": "cpu"})
