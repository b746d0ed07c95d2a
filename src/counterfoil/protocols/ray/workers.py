"""Workers: each builds the parts from the specification and processes the items of its calls."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from counterfoil import protocols
from counterfoil.core.errors import BadRun, RunFailed
from counterfoil.core.process import keep_freed_memory
from counterfoil.core.spec import EngineSpec
from counterfoil.engine.scheduler import CPU_BATCH, CPU_SLOTS
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import ImageProtocol, Outcome, StagedProtocol
from counterfoil.protocols.ray.dispatch import Answer
from counterfoil.protocols.running import skip_outcome
from counterfoil.protocols.stages import Tables
from counterfoil.protocols.workspace import Given
from counterfoil.store import runfile
from counterfoil.store.chunks import ChunkBuilder
from counterfoil.store.stages import Item
from counterfoil.store.writer import COMMIT_AFTER

_BROKEN = re.compile(r"CUDA|CUBLAS|CUDNN|HIP error|out of memory", re.IGNORECASE)  # what a GPU's failures have in them


@dataclass(frozen=True)
class Described:
    """A worker's account of the parts that it has built, so that the driver need not build them."""

    account: Mapping[str, Any]  # of the parts, for `run.json`
    classes: tuple[str, ...] = ()
    slots: int = 1  # items that it works on at a time
    node: str = ""
    spec: Mapping[str, Any] | None = None  # with what a part has filled in
    introduction: tuple[str, ...] = ()  # lines about the parts, for people
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what decides the results of each stage


def check_alike(first: Described, other: Described) -> str:
    """Refuse a worker whose versions, code or weights are not those of the first: its numbers would be those of another run.

    Returns a remark where only its hardware is another, which decides how it rounds.
    """
    (expected, one), (found, two) = _marks(first.account), _marks(other.account)
    name = next((name for name in {**expected, **found} if expected.get(name) != found.get(name)), None)
    if name is not None:
        differ = f"workers differ in {name}: one has {expected.get(name)}, that on node {other.node} has {found.get(name)}"
        raise RunFailed(f"{differ}; bring all nodes to the same versions and files")
    return "" if one == two else f"workers differ in hardware, and so will their rounding: {one}; on node {other.node} {two}"


def _marks(account: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Collect what has to be the same for all workers, versions, code and weights; and name the hardware."""
    weights = {f"parts.{role}.weights": part.get("weights") for role, part in account.get("parts", {}).items()}
    hardware = account.get("hardware", {})
    batch = f" with {hardware['batch_size']} images per call" if "batch_size" in hardware else ""
    marks = {**account.get("versions", {}), "code": account.get("code"), **account.get("functions", {}), **weights}
    return marks, f"{hardware.get('gpu') or hardware.get('machine')}{batch}"


StageItem = tuple[str, Item]
"""An item of a stage, with the stage's name."""


def item_key(item: StageItem) -> str:
    """The stage and the id: late items of one stage may be of the same id as those of the next."""
    return f"{item[0]} {item[1].id}"


@contextmanager
def _fatal_gpu() -> Iterator[None]:
    """End the process where a GPU fails: Ray starts another one, and the work of this one is done there."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not (isinstance(cause, RuntimeError) and _BROKEN.search(str(cause))):
            cause = cause.__cause__
        if cause is not None:
            print(f"counterfoil: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        raise


class NotBuilt(Exception):
    """A call has come to a worker that has no parts yet: a process that Ray has started again."""


class Worker(ABC):
    """Builds the parts of a run once per process, and processes the items it is sent in a thread of its own."""

    def __init__(self, spec: Any, out: Path, *, threads: int) -> None:
        self.spec, self.out, self._threads = spec, out, threads
        self._about: Described | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._coming: deque[Any] = deque()
        self._unfinished: set[str] = set()  # keys of the items that have come
        self._finished: dict[str, Any] = {}  # results that no call has answered with
        self._count, self._since = 0, 0.0  # finished items so far; when the first was finished that no call has answered with
        self._error: BaseException | None = None
        self._handing_in = False

    @abstractmethod
    def assemble(self, check: bool, given: Any) -> Described:
        """Build the parts, try them with `check`, and describe them."""

    @abstractmethod
    def work(self, items: Iterator[Any]) -> None:
        """Call `finish` for each item, with its key. None among them stands for none at the moment."""

    def answer(self, finished: dict[str, Any]) -> Answer:
        """Take results out of those that are finished, and answer with them."""
        return Answer({key: finished.pop(key) for key in list(finished)})

    def build(self, check: bool, given: Any = None) -> Described:
        """Build the parts, unless that was done in this process, and describe them."""
        with _fatal_gpu():
            if self._about is None:
                keep_freed_memory()
                torch.set_num_threads(self._threads)
                self._about = self.assemble(check, given)
            return self._about

    def process(self, items: Mapping[str, Any], at_least: int) -> Answer:
        """Take more items by key; answer when so many, or all, are finished, at the latest a while after the first one is."""
        if self._about is None:
            raise NotBuilt("it was restarted")
        if self._thread is None:
            if not (self.out / runfile.NAME).exists():  # the driver has opened the run by now
                raise BadRun(f"{self.out}: a worker cannot see the run; with several machines --out must be on a disk they share")
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        with self._changed:
            new = {key: item for key, item in items.items() if key not in self._unfinished and key not in self._finished}
            self._coming.extend(new.values())
            self._unfinished.update(new)
            self._changed.notify_all()
            while self._unfinished and len(self._finished) < at_least and not (self._error or self._handing_in):
                if self._finished and time.monotonic() > self._since + COMMIT_AFTER:
                    break
                self._changed.wait(1.0)
            if self._error is not None:
                raise self._error
        return self.answer(self._finished)

    def hand_in(self) -> None:
        """Have calls answer with what is finished."""
        self._handing_in = True

    def sign_of_life(self) -> int:
        """A number that changes as long as the thread gets anywhere: a hash of where it is in its code."""
        frame, places = sys._current_frames().get(self._thread.ident or 0) if self._thread else None, []
        while frame is not None:
            places.append((id(frame.f_code), frame.f_lasti))
            frame = frame.f_back
        return hash((self._count, tuple(places)))

    def finish(self, key: str, result: Any) -> None:
        """Set the result of an item."""
        with self._changed:
            self._since = self._since if self._finished else time.monotonic()
            self._unfinished.discard(key)
            self._finished[key] = result
            self._count += 1
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with _fatal_gpu():
                self.work(self._items())
        except Exception as error:  # raised by the next call, and so in the driver
            self._error = error

    def _items(self) -> Iterator[Any]:
        """Items as they come; None while there is none and others are in progress."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unfinished)
                item = self._coming.popleft() if self._coming else None
            yield item


class ImageWorker(Worker):
    """Makes images one source image at a time, many of them together."""

    def __init__(self, spec: Any, out: Path, *, threads: int, packed: bool) -> None:
        super().__init__(spec, out, threads=threads)
        self._packed = packed

    def assemble(self, check: bool, given: Given | None) -> Described:
        """Build the parts, try them on a few images with `check`, and describe them."""
        protocol, spec = protocols.get(self.spec.protocol), self.spec
        assert isinstance(protocol, ImageProtocol)
        if isinstance(spec.engine, EngineSpec) and spec.device == "cpu":  # one batch of slots leaves less to wait for at the end
            slots = min(spec.engine.slots or CPU_SLOTS, spec.engine.batch_size or CPU_BATCH)
            spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"slots": slots})})
        self._protocol, self._work = protocol, protocol.workspace(spec, given)
        if check:
            protocol.check(self._work)
        engine = getattr(self._work, "engine", None)  # built before anything is sent here, as calls are sent by its slots
        slots = max(engine.slots, engine.batch_size) if engine is not None else self._work.batch
        values = self._work.spec.model_dump(mode="json")
        return Described(self._work.account(), tuple(self._work.names), slots, node=platform.node(), spec=values)

    def work(self, items: Iterator[Sample | None]) -> None:
        """Process images as the protocol does."""

        def finish(outcome: Outcome) -> None:
            self.finish(outcome.image_id, outcome)

        def take(made: Future[Outcome]) -> None:
            self._error = made.exception() or self._error
            if self._error is None:
                finish(made.result())

        sources = self._work.sources(items, lambda sample, problem: finish(skip_outcome(self.spec, sample, problem)))
        for outcome in self._protocol.outcomes(self._work, sources):
            outcome.add_done_callback(take) if isinstance(outcome, Future) else finish(outcome)

    def answer(self, finished: dict[str, Outcome]) -> Answer:
        """Outcomes, whose records and images are in a chunk on the disk."""
        builder, done = ChunkBuilder(self.out, uuid.uuid4().hex, packed=self._packed), {}
        while finished and not builder.is_full:
            outcome = finished.pop(image_id := next(iter(finished)))
            builder.add(outcome.trials, outcome.predictions, outcome.verdicts, outcome.images)
            done[image_id] = (outcome.validated, outcome.note)
        return Answer(done, builder.close() if done else None)


class StageWorker(Worker):
    """Processes items of whichever stage is in progress, whose earlier tables it reads from the disk."""

    def assemble(self, check: bool, given: Given | None) -> Described:
        """Build the parts and describe them."""
        protocol = protocols.get(self.spec.protocol)
        assert isinstance(protocol, StagedProtocol)
        self._protocol, self._work = protocol, protocol.workspace(self.spec, given)
        settings = {stage.name: stage.settings() for stage in protocol.stages(self._work, Tables(self.out))}
        lines = tuple(self._work.introduction())
        return Described(self._work.account(), node=platform.node(), introduction=lines, settings=settings)

    def work(self, items: Iterator[StageItem | None]) -> None:
        """Process batches; the parts of a stage stay on the device until an item of another one comes."""
        stage, some = None, list[StageItem]()
        with ExitStack() as placed:
            for item in items:
                if some and (item is None or item[0] != some[0][0] or len(some) == self.spec.engine.batch):
                    if stage is None or stage.name != some[0][0]:
                        placed.close()
                        stages = self._protocol.stages(self._work, Tables(self.out))
                        stage = next(each for each in stages if each.name == some[0][0])
                        placed.enter_context(self._work.place(*stage.uses))
                    for each, made in zip(some, stage.work([own for _, own in some]), strict=True):
                        self.finish(item_key(each), made)
                    some = []
                some += [item] if item is not None else []
