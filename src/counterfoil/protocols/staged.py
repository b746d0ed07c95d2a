"""A run of a protocol that goes from stage to stage: into its directory, by workers if asked for, to the end or a stage's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from counterfoil import store
from counterfoil.core.errors import BadSpec
from counterfoil.core.spec.base import StagedSpec
from counterfoil.protocols.assembly import Given
from counterfoil.protocols.ray.execution import LOCAL, Execution
from counterfoil.protocols.ray.spreading import here, spreading
from counterfoil.protocols.workbench import Workbench
from counterfoil.store import Run, Writer
from counterfoil.store.later import by_people
from counterfoil.store.stages import Progress, StageReached, Stages

AnySpec = TypeVar("AnySpec", bound=StagedSpec)
AnyBench = TypeVar("AnyBench", bound=Workbench)
Tables = TypeVar("Tables")


@dataclass(frozen=True)
class StagedProtocol(Generic[AnySpec, AnyBench, Tables]):
    """What a protocol has of its own."""

    assemble: Callable[[AnySpec, Given | None], AnyBench]
    stages: Callable[[AnyBench], Sequence[str]]  # what the stages are called, in their order
    make: Callable[[AnyBench, Stages], Tables]  # goes through all of them
    write: Callable[[AnyBench, Stages, Tables, Writer], None]  # the records that are not in the store yet
    results: Callable[[Run, int], dict[str, Any]]

    def run(
        self,
        spec: AnySpec,
        out: Path,
        *,
        given: Given | None = None,
        stage: str | None = None,
        execution: Execution = LOCAL,
        watch: Callable[[Progress], None] = lambda progress: None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Run:
        """Run `spec` into the directory `out`, or go on with it where it was interrupted; with `stage`, as far as that one."""
        bench = self.assemble(here(spec, execution), given)
        if stage is not None and stage not in self.stages(bench):
            raise BadSpec(f"no stage named {stage!r}; stages are {', '.join(self.stages(bench))}")
        engine = spec.engine
        with (
            execution.computing(),
            spreading(spec, out, given=bench.told(given), execution=execution, tell=tell) as others,
            store.write(
                out,
                spec=spec.model_dump(mode="json"),
                classes=bench.names,
                provenance=bench.provenance(others.account or bench.account()),
                chunk_images=engine.chunk_images,
            ) as writer,
        ):
            for note in writer.notes:
                tell(note)
            stages = Stages(
                out, batch=engine.batch, workers=engine.workers, until=stage, spread=others.spread, watch=watch, tell=tell
            )
            try:
                tables = self.make(bench, stages)
            except StageReached:
                tell(f"stopped after the stage {stage!r}; the same command without --stage goes on")
                return store.open_run(out)
            writer.generation(stages.mark())
            self.write(bench, stages, tables, writer)
            if dropped := writer.switch():
                tell(_said_of_others(dropped))
            writer.finish(self.results(store.open_run(out), spec.seed))
        return store.open_run(out)


def _said_of_others(dropped: Mapping[tuple[str, str], int]) -> str:
    """What was dropped, and how to have it said again."""
    names = ", ".join(f"{number} by {name}" for (_, name), number in sorted(dropped.items()))
    again = {"score" if role == "model" else "review --new" if by_people(name) else "judge" for role, name in dropped}
    commands = " and ".join(f"'counterfoil {each}'" for each in sorted(again))
    return f"dropped what was said later of pictures that are others now or gone ({names}); ask again with {commands}"
