"""A protocol that makes images one by one, over a crew of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from counterfoil import store
from counterfoil.core.spec import RunSpec
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import TRIED, ImageSet
from counterfoil.protocols.base import ImageProtocol, Tell, Watch
from counterfoil.protocols.ray.climbing import ClimbWorker
from counterfoil.protocols.ray.crew import Crew, Described
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.ray.leases import ALONE, Leases
from counterfoil.protocols.ray.ray import RayPool
from counterfoil.protocols.running import begun, finish, missing, skipped, write
from counterfoil.protocols.workspace import Given, open_data, with_data
from counterfoil.store import Writer, layout


def run(
    protocol: ImageProtocol, spec: Any, out: Path, *, given: Given | None, execution: Execution, watch: Watch, tell: Tell
) -> None:
    """Run `spec` with workers that build the parts themselves; this process reads the list of images and commits."""
    dataset = open_data(spec, given)
    laid = layout(len(dataset), at_least=spec.engine.chunk_images)
    with RayPool(execution, device=spec.device, tell=tell) as pool:
        told = replace(given or Given(), head=dataset.head(TRIED))  # workers do not list millions of images again
        pool.employ(ClimbWorker, spec, out.resolve(), threads=pool.threads, given=told, **laid)
        crew = Crew(pool, pool.workers, tell)
        about: Described = crew.start()
        account = with_data(about.account, dataset)
        with store.write(out, spec=about.spec or {}, classes=about.classes, provenance=account, **laid) as writer:
            for note in writer.notes:
                tell(note)
            make(crew, spec, dataset, writer, slots=about.slots, room=about.room or 1, watch=watch, tell=tell)
            finish(protocol, writer)
            pool.ask("finished")


def make(
    crew: Crew, spec: RunSpec, dataset: ImageSet, writer: Writer, *, slots: int = 1, room: int, watch: Watch, tell: Tell
) -> None:
    """Every image that is not in the store yet, through the workers and into it."""
    progress = begun(spec, writer, dataset)
    watch(progress)
    leases: Leases[Sample] = Leases(
        missing(writer, dataset), key=lambda sample: sample.image_id, workers=crew.workers, most=max(1, room // 4), slots=slots
    )
    try:
        for finished, staged, lost in crew.work(leases, room=room, through_store=True):
            if staged is not None:
                writer.commit(staged)
            for sample in lost:
                outcome = skipped(
                    spec, sample, f"{sample.source or sample.image_id}: ended its worker {ALONE} times; try it locally"
                )
                write(outcome, writer)
                tell(outcome.note)
                progress = progress.more(validated=False, skipped=True)
            for each in finished:
                if each.note:
                    tell(each.note)
                progress = progress.more(validated=each.validated, skipped=bool(each.note))
            watch(progress)
    except BaseException:  # an interruption, mostly; a second one is not waited through
        for staged in crew.salvage(leases):
            writer.commit(staged)
        raise
