"""Workers: each builds the parts from the specification and processes the items of its calls."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from counterfoil import protocols
from counterfoil.core.errors import BadImage, BadRun, RunFailed
from counterfoil.core.process import keep_freed_memory
from counterfoil.core.spec import EngineSpec, RunSpec
from counterfoil.engine.scheduler import CPU_BATCH, CPU_SLOTS
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import ImageProtocol, Outcome, StagedProtocol
from counterfoil.protocols.ray.dispatch import Answer
from counterfoil.protocols.running import skip_outcome
from counterfoil.protocols.stages import Tables
from counterfoil.protocols.workspace import Given, Source
from counterfoil.store import runfile
from counterfoil.store.chunks import ChunkBuilder
from counterfoil.store.stages import Item
from counterfoil.store.writer import COMMIT_AFTER

BEAT = 5.0  # seconds after which a sign of life is given
LINGER = 0.5  # seconds that images too few for a batch wait for others: starting one costs the engine as much as a batch
READERS = 4

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


def check_alike(first: Described, other: Described) -> None:
    """Refuse a worker whose versions, code or weights are not those of the first: its numbers would be those of another run."""
    expected, found = _marks(first.account), _marks(other.account)
    name = next((name for name in {**expected, **found} if expected.get(name) != found.get(name)), None)
    if name is not None:
        raise RunFailed(
            f"workers differ in {name}: one has {expected.get(name)}, that on node {other.node} has {found.get(name)}; "
            "bring all nodes to the same versions and files"
        )


def machine(about: Described) -> str:
    """Name the hardware that decides how a worker rounds."""
    hardware = about.account.get("hardware", {})
    name = str(hardware.get("gpu") or hardware.get("machine"))
    return f"{name} with {hardware['batch_size']} images per call" if "batch_size" in hardware else name


def _marks(account: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what has to be the same for all workers: versions, code and weights."""
    weights = {f"parts.{role}.weights": part.get("weights") for role, part in account.get("parts", {}).items()}
    return {**account.get("versions", {}), "code": account.get("code"), **account.get("functions", {}), **weights}


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
    """A call has come to a worker that has no parts yet."""


class Worker:
    """A worker of either kind: it builds its parts once per process and gives signs of life."""

    def __init__(self, spec: Any, out: Path, *, threads: int) -> None:
        self.spec, self.out, self._threads = spec, out, threads
        self.at_work: list[threading.Thread] = []
        self._building = threading.Lock()
        self._about: Described | None = None

    def build(self, check: bool, given: Any = None) -> Described:
        """Build the parts, unless that was done in this process, and describe them. `check` tries them on a few images."""
        with self._building, _fatal_gpu():
            if self._about is None:
                keep_freed_memory()
                torch.set_num_threads(self._threads)
                self._about = self.assemble(check, given)
            return self._about

    def refuse_unbuilt(self) -> None:
        """Raise NotBuilt in a process that Ray has started again and the driver does not know of yet."""
        if self._about is None:
            raise NotBuilt

    def assemble(self, check: bool, given: Any) -> Described:
        """Build the parts and describe them."""
        raise NotImplementedError

    def begin_thread(self, work: Callable[[], None]) -> None:
        """Start the thread that computes. The driver has opened the run by then."""
        if not (self.out / runfile.NAME).exists():
            raise BadRun(f"{self.out}: a worker cannot see the run; with several machines --out must be on a disk they share")
        self.at_work.append(threading.Thread(target=work, name="work", daemon=True))
        self.at_work[-1].start()

    def sign_of_life(self) -> tuple[int, int]:
        """The process, and a number that changes as long as its thread gets anywhere: a hash of where it is in its code."""
        time.sleep(BEAT if self._about is not None else 0.0)
        frames, places = sys._current_frames(), []
        for thread in self.at_work:
            frame = frames.get(thread.ident or 0)
            while frame is not None:
                places.append((id(frame.f_code), frame.f_lasti))
                frame = frame.f_back
        return os.getpid(), hash((self.count_finished(), tuple(places)))

    def count_finished(self) -> int:
        """Number of items that are finished."""
        raise NotImplementedError


class Feed:
    """Images for an engine, out of samples that come a few at a time. None stands for too few at the moment."""

    def __init__(self, load: Callable[[Any], Any], skip: Callable[[Any, BadImage], Any], *, batch: int) -> None:
        """`load` gives what the engine takes for a sample, `skip` the outcome of one that cannot be read."""
        self._load, self._skip, self._batch = load, skip, batch
        self._changed = threading.Condition()
        self._coming: deque[Any] = deque()
        self._reading: deque[tuple[Any, Future[Any]]] = deque()
        self._begun = 0  # images that the engine has
        self._outcomes: dict[str, Future[Any]] = {}  # by the id of their image, until they are taken
        self._due = 0  # images that the engine gets without a pause
        self._since = 0.0  # when the oldest of the others came
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._failure: BaseException | None = None
        self.finished = 0

    def put(self, sample: Any) -> Future[Any]:
        """Take a sample, unless it is here already; the future has its outcome."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if sample.image_id not in self._outcomes:
                self._outcomes[sample.image_id] = Future()
                if not self._coming and not self._reading:
                    self._since = time.monotonic()
                self._coming.append(sample)
                self._read_ahead()
                self._changed.notify_all()
            return self._outcomes[sample.image_id]

    def resolve(self, outcome: Outcome) -> None:
        """Set the outcome of an image."""
        with self._changed:
            self.finished += 1
            if not (future := self._outcomes[outcome.image_id]).done():
                future.set_result(outcome)

    def take(self, image_id: str) -> Any:
        """The outcome of an image, which is forgotten here; None where another call has taken it."""
        with self._changed:
            future = self._outcomes.pop(image_id, None)
        return future.result() if future is not None else None

    def fail(self, error: BaseException) -> None:
        """End everything with an error."""
        with self._changed:
            self._failure = error
            for future in self._outcomes.values():
                if not future.done():
                    future.set_exception(error)

    def release(self) -> None:
        """Count an image as one that the engine has no longer."""
        with self._changed:
            self._begun -= 1

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        while True:
            with self._changed:
                if not self._begun:  # the engine has nothing to do; a worker that is not needed any more is ended here
                    self._changed.wait_for(lambda: self._reading)
                if not self._is_due():
                    return None
                self._due -= 1
                sample, loaded = self._reading.popleft()
                self._begun += 1
                self._read_ahead()
            try:
                return loaded.result()
            except BadImage as problem:
                self.release()
                self.resolve(self._skip(sample, problem))

    def _read_ahead(self) -> None:
        while self._coming and len(self._reading) < 4 * self._batch:
            sample = self._coming.popleft()
            self._reading.append((sample, self._readers.submit(self._load, sample)))

    def _is_due(self) -> bool:
        """Tell whether the engine gets the next image now."""
        now = time.monotonic()
        if self._due == 0 and (len(self._reading) >= self._batch or not self._begun or now - self._since >= LINGER):
            self._due, self._since = min(len(self._reading), self._batch), now
        return self._due > 0


class ImageWorker(Worker):
    """Makes images one source image at a time, many of them together. Several calls share its one engine."""

    def __init__(self, spec: Any, out: Path, *, threads: int, packed: bool) -> None:
        super().__init__(spec, out, threads=threads)
        self._packed, self._handing_in, self._beginning = packed, threading.Event(), threading.Lock()
        self._feed: Feed | None = None

    def assemble(self, check: bool, given: Given | None) -> Described:
        """Build the parts, try them on a few images with `check`, and describe them."""
        protocol = protocols.get(self.spec.protocol)
        assert isinstance(protocol, ImageProtocol)
        self._protocol, self._work = protocol, protocol.workspace(_with_slots(self.spec), given)
        if check:
            protocol.check(self._work)
        engine = getattr(self._work, "engine", None)  # built before anything is sent here, as calls are sent by its slots
        self._batch = engine.batch_size if engine is not None else self._work.batch
        slots = max(engine.slots, engine.batch_size) if engine is not None else self._work.batch
        values = self._work.spec.model_dump(mode="json")
        return Described(self._work.account(), tuple(self._work.names), slots, node=platform.node(), spec=values)

    def process(self, samples: Sequence[Sample], stage: str | None = None) -> Answer:
        """Outcomes of images, in a chunk on the disk. It may answer early with some, to have them committed."""
        self.refuse_unbuilt()
        with _fatal_gpu():
            feed = self._begin()
            futures = {sample.image_id: feed.put(sample) for sample in samples}
            first = float("inf")  # when the first was finished
            while wait(futures.values(), timeout=0.2).not_done and not self._handing_in.is_set():
                if first == float("inf") and any(future.done() for future in futures.values()):
                    first = time.monotonic()
                if time.monotonic() - first > COMMIT_AFTER:
                    break
            builder, done = ChunkBuilder(self.out, uuid.uuid4().hex, packed=self._packed), {}
            for image_id, future in futures.items():
                if not builder.is_full and future.done() and (outcome := feed.take(image_id)) is not None:
                    builder.add(outcome.trials, outcome.predictions, outcome.verdicts, outcome.images)
                    done[image_id] = (outcome.validated, outcome.note)
            return Answer(done, builder.close() if len(builder) else None)

    def hand_in(self) -> None:
        """Have all calls end with what is finished."""
        self._handing_in.set()

    def count_finished(self) -> int:
        """Number of finished images."""
        return self._feed.finished if self._feed is not None else 0

    def _begin(self) -> Feed:
        with self._beginning:
            if self._feed is None:
                self._feed = Feed(self._load, lambda sample, problem: skip_outcome(self.spec, sample, problem), batch=self._batch)
                self.begin_thread(self._run)
            return self._feed

    def _load(self, sample: Sample) -> Source:
        return self._work.source(sample, self._work.dataset.load(sample, self._work.size))

    def _run(self) -> None:
        assert self._feed is not None
        try:
            with _fatal_gpu():
                for outcome in self._protocol.outcomes(self._work, self._feed):
                    self._feed.release()
                    if isinstance(outcome, Future):
                        outcome.add_done_callback(self._resolve)
                    else:
                        self._feed.resolve(outcome)
        except Exception as error:  # raised by the calls, and so in the driver
            self._feed.fail(error)

    def _resolve(self, future: Future[Outcome]) -> None:
        assert self._feed is not None
        error = future.exception()
        if error is None:
            self._feed.resolve(future.result())
        else:
            self._feed.fail(error)


def _with_slots(spec: RunSpec) -> RunSpec:
    """On a CPU one batch of slots is enough, and leaves less to be waited for at the end."""
    engine = getattr(spec, "engine", None)
    if not isinstance(engine, EngineSpec) or torch.device(spec.device).type != "cpu":
        return spec
    slots = min(engine.slots or CPU_SLOTS, engine.batch_size or CPU_BATCH)
    return spec.model_copy(update={"engine": engine.model_copy(update={"slots": slots})})


class StageWorker(Worker):
    """Processes batches of whichever stage is in progress, whose earlier tables it reads from the disk."""

    def __init__(self, spec: Any, out: Path, *, threads: int) -> None:
        super().__init__(spec, out, threads=threads)
        self._batches: SimpleQueue[tuple[str, Sequence[Item], Future[Answer]]] = SimpleQueue()
        self._beginning, self._done = threading.Lock(), 0

    def assemble(self, check: bool, given: Given | None) -> Described:
        """Build the parts and describe them."""
        protocol = protocols.get(self.spec.protocol)
        assert isinstance(protocol, StagedProtocol)
        self._protocol, self._work = protocol, protocol.workspace(self.spec, given)
        settings = {stage.name: stage.settings() for stage in protocol.stages(self._work, Tables(self.out))}
        lines = tuple(self._work.introduction())
        return Described(self._work.account(), node=platform.node(), introduction=lines, settings=settings)

    def process(self, items: Sequence[Item], stage: str | None = None) -> Answer:
        """Results of a batch."""
        self.refuse_unbuilt()
        with self._beginning:
            if not self.at_work:
                self.begin_thread(self._run)
        future: Future[Answer] = Future()
        self._batches.put((str(stage), items, future))
        return future.result()

    def hand_in(self) -> None:
        """Results of stages are not waited for."""

    def count_finished(self) -> int:
        """Number of finished items."""
        return self._done

    def _run(self) -> None:
        """Process batches; the parts of a stage stay on the device until a batch of another one comes."""
        name, stage, placed = "", None, ExitStack()
        while True:
            asked, items, future = self._batches.get()
            try:
                with _fatal_gpu():
                    if stage is None or asked != name:
                        placed.close()
                        name, stages = asked, self._protocol.stages(self._work, Tables(self.out))
                        stage = next(each for each in stages if each.name == asked)
                        placed.enter_context(self._work.place(*stage.uses))
                    found = {item.id: made for item, made in zip(items, stage.work(items), strict=True)}
                    self._done += len(items)
                    future.set_result(Answer(found))
            except Exception as error:  # raised by the call, and so in the driver
                future.set_exception(error)
