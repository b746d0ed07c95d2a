"""The staged protocols over a crew: every worker knows the same stages and is given their batches.

A batch goes out once the tables before its stage are complete; a worker reads them from the disk.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from counterfoil import protocols
from counterfoil.core.errors import BadRun
from counterfoil.protocols.base import StagedProtocol
from counterfoil.protocols.ray.crew import Crew, Described, Finished, Order, Report
from counterfoil.protocols.ray.leases import ALONE, Leases
from counterfoil.protocols.stages import Result, Tables
from counterfoil.protocols.workspace import Given
from counterfoil.store import runfile
from counterfoil.store.stages import Item, turned_away

TURN = 0.2  # seconds that a turn waits for something to be finished


class StageWorker:
    """Builds the parts from the specification and processes batches of whichever stage is in progress."""

    def __init__(self, spec: Any, out: Path, *, threads: int, given: Given | None) -> None:
        self._spec, self._out, self._given, self._threads = spec, out, given, threads
        self._batches: queue.SimpleQueue[tuple[str, Sequence[Item]]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[str, list[Finished]] | Exception] = queue.SimpleQueue()
        self._begun = False

    def begin(self, *, check: bool = True) -> Described:
        """Build the parts, and say what they are."""
        torch.set_num_threads(self._threads)
        protocol = protocols.get(self._spec.protocol)
        assert isinstance(protocol, StagedProtocol)
        self._protocol, self._work = protocol, protocol.workspace(self._spec, self._given)
        return Described(self._work.account())

    def turn(self, order: Order[Item]) -> Report:
        """Take in a batch, and say what was finished of the stage."""
        if not self._begun:
            self._start()
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

    def _start(self) -> None:
        if not (self._out / runfile.NAME).exists():
            raise BadRun(f"{self._out}: a worker cannot see the run; with several machines --out must be on a disk they share")
        threading.Thread(target=self._process, name="stages", daemon=True).start()
        self._begun = True

    def _process(self) -> None:
        """Process batches; the parts of a stage stay on the device until a batch of another one comes."""
        try:
            with ExitStack() as placed:
                current = ""
                while True:
                    name, items = self._batches.get()
                    if name != current:
                        placed.close()
                        tables = Tables(self._out)
                        stage = next(each for each in self._protocol.stages(self._work, tables) if each.name == name)
                        placed.enter_context(self._work.placed(*stage.uses))
                        current = name
                    results = stage.work(items)
                    self._outbox.put((name, [Finished(item.id, each) for item, each in zip(items, results, strict=True)]))
        except Exception as error:  # told at the next turn, and raised by the driver
            self._outbox.put(error)


@dataclass
class CrewSpread:
    """Hands the batches of the driver's stages to a crew."""

    crew: Crew

    def batches(self, stage: str, items: Iterator[Item], *, batch: int) -> Iterator[tuple[list[Item], Sequence[Result]]]:
        """Every item with its result, some at a time, in any order."""
        in_progress: dict[str, Item] = {}

        def noted() -> Iterator[Item]:
            for item in items:
                in_progress[item.id] = item
                yield item

        leases = Leases(noted(), key=lambda item: item.id, workers=self.crew.workers, most=batch, slots=batch)
        for finished, _, lost in self.crew.work(leases, room=2 * batch, through_store=False, stage=stage):
            if finished:
                yield [in_progress.pop(each.key) for each in finished], [each.value for each in finished]
            for item in lost:
                yield [in_progress.pop(item.id)], [turned_away("failed", f"ended its worker {ALONE} times; try it locally")]
