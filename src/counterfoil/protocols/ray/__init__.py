"""Run over workers of Ray: on this machine, one per GPU or group of cores, or on all machines of a cluster.

    dispatch.py    hands items to workers until each is done once
    cluster.py     the workers as actors, which Ray restarts
    workers.py     what runs in them

The driver holds the run's lock and alone commits; workers write chunks under temporary names and name them in their answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import store
from counterfoil.core.spec import RunSpec
from counterfoil.parts.datasets.image_set import TRIED, ImageSet
from counterfoil.protocols import running
from counterfoil.protocols.base import Execution, ImageProtocol, Tell, Watch
from counterfoil.protocols.provenance import with_data
from counterfoil.protocols.ray.cluster import Cluster
from counterfoil.protocols.ray.dispatch import Answer, Dispatch
from counterfoil.protocols.ray.workers import Described, ImageWorker, StageWorker, item_key
from counterfoil.protocols.workspace import Given
from counterfoil.store.stages import Item, turned_away

HAND_IN = 20.0  # seconds that workers may take to hand in what is finished when a run is interrupted
GIVEN_UP = "ended its worker 4 times with nothing else around; try it with --executor local"


def run_images(
    protocol: ImageProtocol, spec: Any, out: Path, *, given: Given | None, execution: Execution, watch: Watch, tell: Tell
) -> None:
    """Run a specification with workers that build the parts themselves; this process lists the images and commits."""
    dataset = protocol.open_data(spec, given)
    layout = store.layout(len(dataset), at_least=spec.engine.chunk_images)
    with Cluster(execution, device=spec.device, tell=tell) as cluster:
        listed = replace(given or Given(), head=dataset.head(TRIED))  # workers do not list millions of images again
        about = cluster.start(ImageWorker, spec, out.resolve(), given=listed, packed=layout["packed"])
        account = with_data(about.account, dataset)
        with store.write(out, about.spec or {}, about.classes, account, **layout) as writer:
            for note in writer.notes:
                tell(note)
            process_images(cluster, spec, dataset, writer, watch=watch, tell=tell)
            running.finish(protocol, writer)
            cluster.stop()
            writer.remove_leftovers()  # of calls whose images others have finished


def process_images(pool: Cluster, spec: RunSpec, dataset: ImageSet, writer: store.Writer, *, watch: Watch, tell: Tell) -> None:
    """Every image that is not in the store yet, through the workers and into it."""
    progress = running.begin(spec, writer, dataset)
    watch(progress)
    samples = Dispatch(pool, running.missing(writer, dataset), lambda sample: sample.image_id, writer.chunk_images)
    try:
        for done, answer in samples:
            if answer is None:
                outcome = running.skip_outcome(spec, done[0], f"{done[0].source or done[0].image_id}: {GIVEN_UP}")
                running.write(outcome, writer)
                found = [(outcome.validated, outcome.note)]
            else:
                commit(writer, [each.image_id for each in done], answer)
                found = [answer.done[each.image_id] for each in done]
            for accepted, note in found:
                if note:
                    tell(note)
                progress = progress.more(validated=accepted, skipped=bool(note))
            watch(progress)
    except BaseException:  # an interruption, mostly; a second one is not waited through
        for done, answer in samples.hand_in(HAND_IN):
            if answer is not None:
                commit(writer, [each.image_id for each in done], answer)
        raise


def commit(writer: store.Writer, image_ids: Sequence[str], answer: Answer) -> None:
    """Commit the chunk of an answer, without the images that another answer had before."""
    if answer.chunk is not None:
        others = set(answer.chunk.image_ids) - set(image_ids)
        if image_ids:
            writer.commit(answer.chunk.without(writer.path, others) if others else answer.chunk)
        else:
            answer.chunk.drop(writer.path)


@dataclass
class Crew:
    """Has batches of stages processed by a pool of workers."""

    pool: Cluster
    about: Described  # the workers' parts

    def settings(self, stage: str) -> Mapping[str, Any]:
        """Return what decides the results of a stage in addition to its items."""
        return self.about.settings[stage]

    def batches(self, stage: str, items: Iterator[Item], *, batch: int) -> Iterator[tuple[list[Item], Sequence[Any]]]:
        """Every item with its result, some at a time, in any order."""
        for done, answer in Dispatch(self.pool, ((stage, item) for item in items), item_key, batch):
            if done:
                found = [answer.done[item_key(each)] if answer else turned_away("failed", GIVEN_UP) for each in done]
                yield [item for _, item in done], found


@contextmanager
def crew(spec: Any, out: Path, *, given: Given | None, execution: Execution, tell: Tell) -> Iterator[Crew]:
    """Workers for the batches of a run's stages, as long as the block lasts."""
    with Cluster(execution, device=spec.device, tell=tell) as cluster:
        yield Crew(cluster, cluster.start(StageWorker, spec, out.resolve(), given=given))
