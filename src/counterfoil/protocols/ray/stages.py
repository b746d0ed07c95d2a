"""The staged protocols over a crew: every worker runs the same stages and is given their batches.

A worker goes through the protocol like the driver does. Where the driver works a stage off, the worker waits for batches of
it; when the stage is complete, both go on with its table, which is on the disk.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from counterfoil.core import process
from counterfoil.core.errors import BadRun
from counterfoil.protocols.assembly import Given
from counterfoil.protocols.ray.crew import Crew, Described, Finished, Order, Report
from counterfoil.protocols.ray.leases import ALONE, Leases
from counterfoil.store import runfile
from counterfoil.store.stages import Blobs, Follows, Item, Items, Stages, Table, open_table, turned_away
from counterfoil.store.stages.mapping import FOLDER, Result, Work

TURN = 0.2  # seconds that a turn waits for something to be finished
LULL = 0.02  # seconds after which a worker without a batch looks whether the stage is over
PROTOCOLS = {
    "lance": ("counterfoil.protocols.lance.bench:assemble", "counterfoil.protocols.lance.running:make"),
    "imagenet-d": ("counterfoil.protocols.imagenet_d.bench:assemble", "counterfoil.protocols.imagenet_d.running:make"),
}
"""What builds the parts of a protocol, and what goes through its stages."""


class StageWorker:
    """Builds the parts from the specification and works on batches of whichever stage is under way."""

    def __init__(self, spec: Any, out: Path, *, threads: int, given: Given | None) -> None:
        self._spec, self._out, self._given, self._threads = spec, out, given, threads
        self._batches: queue.SimpleQueue[tuple[str, Sequence[Item]]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[str, list[Finished]] | Exception] = queue.SimpleQueue()
        self._over: set[str] = set()
        self._begun = False

    def begin(self, *, check: bool = True) -> Described:
        """Build the parts, and say what they are."""
        process.keep_freed_memory()
        torch.set_num_threads(self._threads)
        self._bench = _named(PROTOCOLS[self._spec.protocol][0])(self._spec, self._given)
        return Described(self._bench.account())

    def turn(self, order: Order[Item]) -> Report:
        """Take in a batch, and say what was finished of the stage."""
        if not self._begun:
            self._start()
        self._over.update(order.over)
        if order.give:
            self._batches.put((order.stage, order.give))
        finished: list[Finished] = []
        try:
            entry = self._outbox.get(timeout=TURN)
            while True:
                if isinstance(entry, Exception):
                    return Report(finished, error=entry)
                stage, results = entry
                if stage == order.stage:  # what came too late for another stage is in its table already
                    finished += results
                entry = self._outbox.get_nowait()
        except queue.Empty:
            return Report(finished)

    def serve(self, stage: str, work: Work) -> None:
        """Work on batches of a stage until it is over."""
        while stage not in self._over:
            try:
                asked, items = self._batches.get(timeout=LULL)
            except queue.Empty:
                continue
            if asked == stage:
                found = [Finished(item.id, result) for item, result in zip(items, work(items), strict=True)]
                self._outbox.put((stage, found))
            elif asked not in self._over:  # of a stage further on; this one is over then, and says so in a moment
                self._batches.put((asked, items))

    def _start(self) -> None:
        if not (self._out / runfile.NAME).exists():
            raise BadRun(f"{self._out}: a worker cannot see the run; with several machines --out must be on a disk they share")
        threading.Thread(target=self._go_through, name="stages", daemon=True).start()
        self._begun = True

    def _go_through(self) -> None:
        try:
            _named(PROTOCOLS[self._spec.protocol][1])(self._bench, ServedStages(self._out, self))
        except Exception as error:  # told at the next turn, and raised by the driver
            self._outbox.put(error)


class ServedStages(Stages):
    """The stages as a worker sees them: it works on what it is given, and reads the tables that the driver has written."""

    def __init__(self, run: Path, worker: StageWorker) -> None:
        self.root = run / FOLDER
        self.blobs = Blobs(run)
        self._worker = worker

    def map(
        self,
        name: str,
        items: Items | Sequence[Item],
        work: Work,
        *,
        settings: Mapping[str, Any],
        blobs: Sequence[str] = (),
        batch: int | None = None,
        parallel: bool = False,
        follows: Follows = lambda row: {},
    ) -> Table:
        """The table of a stage, once it is complete."""
        self._worker.serve(name, work)
        return open_table(self.root, name)


@dataclass
class CrewSpread:
    """Hands the batches of the driver's stages to a crew."""

    crew: Crew
    _complete: list[str] = field(default_factory=list)

    def batches(self, stage: str, items: Iterator[Item], *, batch: int) -> Iterator[tuple[list[Item], Sequence[Result]]]:
        """Every item with its result, some at a time, in any order."""
        under_way: dict[str, Item] = {}

        def noted() -> Iterator[Item]:
            for item in items:
                under_way[item.id] = item
                yield item

        leases = Leases(noted(), key=lambda item: item.id, workers=self.crew.workers, most=batch, slots=batch)
        over = tuple(self._complete)
        for finished, _, lost in self.crew.work(leases, room=2 * batch, through_store=False, stage=stage, over=over):
            if finished:
                yield [under_way.pop(each.key) for each in finished], [each.value for each in finished]
            for item in lost:
                yield [under_way.pop(item.id)], [turned_away("failed", f"ended its worker {ALONE} times; try it locally")]

    def complete(self, stage: str) -> None:
        """Workers may go on from here."""
        self._complete.append(stage)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
