"""A worker that makes images one by one: its protocol in a thread of its own, fed and emptied turn by turn."""

from __future__ import annotations

import queue
import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from counterfoil import protocols
from counterfoil.core import process
from counterfoil.core.errors import BadImage, BadRun
from counterfoil.core.spec import FmrSpec, RunSpec
from counterfoil.engine.scheduler import CPU_BATCH, CPU_SLOTS
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import ImageProtocol, Outcome
from counterfoil.protocols.ray.crew import Described, Finished, Order, Report
from counterfoil.protocols.ray.feed import Feed
from counterfoil.protocols.running import skipped
from counterfoil.protocols.workspace import Given, Workspace
from counterfoil.store import runfile
from counterfoil.store.chunks import Chunk, ChunkBuilder

TURN = 0.2  # seconds that a turn waits for something to be finished


class ClimbWorker:
    """Builds the parts from the specification and climbs what it is given."""

    def __init__(self, spec: RunSpec, out: Path, *, chunk_images: int, packed: bool, threads: int, given: Given | None) -> None:
        self._spec, self._out, self._given = spec, out, given
        self._chunk_images, self._packed, self._threads = chunk_images, packed, threads
        self._work: Workspace[Any] | None = None
        self._outbox: queue.SimpleQueue[Outcome | Future[Outcome] | Exception] = queue.SimpleQueue()
        self._pending: dict[str, Outcome] = {}  # finished, and not told yet whether to hand in
        self._buffer: ChunkBuilder | None = None
        self._begun = False

    def begin(self, *, check: bool = True) -> Described:
        """Build the parts, try them on a few images unless others have, and say what they are."""
        process.keep_freed_memory()
        torch.set_num_threads(self._threads)
        found = protocols.get(self._spec.protocol)
        assert isinstance(found, ImageProtocol)
        self._protocol = found
        self._work = work = found.workspace(_laid_out(self._spec), self._given)
        if check:
            found.check(work)
        engine = getattr(work, "engine", None)  # built before anything is given out, as the driver gives out by its slots
        self._tile = engine.batch_size if engine is not None else work.batch
        slots = max(engine.slots, engine.batch_size) if engine is not None else work.batch
        room = engine.capacity if engine is not None else 2 * work.batch
        return Described(work.account(), tuple(work.names), slots, room=room, spec=work.spec.model_dump(mode="json"))

    def turn(self, order: Order[Sample]) -> Report:
        """Take in what is given, hand in what is asked for, and say what was finished."""
        if not self._begun:
            self._start()
        self._feed.drop(order.drop)
        self._feed.put(order.give)
        for key in order.drop:
            self._pending.pop(key, None)
        for key in order.hand_in:
            self._into_buffer(self._pending.pop(key))
        staged = self._staged(flush=order.flush)
        found, error = self._collected(wait=TURN if staged is None else 0.0)
        finished = [Finished(each.image_id, validated=each.validated, note=each.note) for each in found]
        self._pending.update((each.image_id, each) for each in found)
        return Report(finished, staged, error)

    def finished(self) -> None:
        """Add to the finished run what is no part of its results."""
        self._protocol.finished(self._work, self._out)

    def _start(self) -> None:
        if not (self._out / runfile.NAME).exists():
            raise BadRun(f"{self._out}: a worker cannot see the run; with several machines --out must be on a disk they share")
        assert self._work is not None
        self._feed = Feed(self._work, self._skip, tile=self._tile)
        threading.Thread(target=self._climb, name="climb", daemon=True).start()
        self._begun = True

    def _climb(self) -> None:
        """The protocol's thread: works as long as something comes."""
        try:
            for outcome in self._protocol.outcomes(self._work, self._feed):
                self._feed.through()
                self._outbox.put(outcome)
        except Exception as error:  # told at the next turn, and raised by the driver
            self._outbox.put(error)

    def _skip(self, sample: Sample, problem: BadImage) -> None:
        try:
            self._outbox.put(skipped(self._spec, sample, problem))
        except Exception as error:
            self._outbox.put(error)

    def _collected(self, *, wait: float) -> tuple[list[Outcome], Exception | None]:
        """What was finished by now, at least one if it comes in time."""
        found: list[Outcome] = []
        try:
            entry = self._outbox.get(timeout=wait) if wait else self._outbox.get_nowait()
            while True:
                if isinstance(entry, Exception):
                    return found, entry
                outcome = entry.result() if isinstance(entry, Future) else entry
                self._feed.finished(outcome.image_id)
                found.append(outcome)
                entry = self._outbox.get_nowait()
        except queue.Empty:
            return found, None
        except Exception as error:  # a record that could not be made
            return found, error

    def _into_buffer(self, outcome: Outcome) -> None:
        if self._buffer is None:
            self._buffer = ChunkBuilder(self._out, uuid.uuid4().hex, packed=self._packed)
        self._buffer.add(outcome.trials, outcome.predictions, outcome.verdicts, outcome.images)

    def _staged(self, *, flush: bool) -> Chunk | None:
        if self._buffer is None or (self._buffer.counts["images"] < self._chunk_images and not flush):
            return None
        buffer, self._buffer = self._buffer, None
        return buffer.close()


def _laid_out(spec: RunSpec) -> RunSpec:
    """On a CPU one batch of slots is enough, and leaves less to be waited for at the end."""
    if not isinstance(spec, FmrSpec) or torch.device(spec.device).type != "cpu":
        return spec
    slots = min(spec.engine.slots or CPU_SLOTS, spec.engine.batch_size or CPU_BATCH)
    return spec.model_copy(update={"engine": spec.engine.model_copy(update={"slots": slots})})
