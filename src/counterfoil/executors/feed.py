"""Pictures for the engine, out of samples that come a few at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from counterfoil.assembly import Assembly
from counterfoil.engine import Job
from counterfoil.errors import BadImage
from counterfoil.parts import Sample

READERS = 4
GRACE = 0.05  # seconds that a running engine waits for more before it finishes what it has


class Feed:
    """An iterator of jobs that pauses when nothing has come for a moment, and can be iterated again when more has."""

    def __init__(self, assembly: Assembly, on_bad: Callable[[Sample, BadImage], None]) -> None:
        self._assembly, self._on_bad = assembly, on_bad
        self._changed = threading.Condition()
        self._coming: deque[tuple[Sample, Future[Tensor]]] = deque()
        self._dropped: set[str] = set()
        self._sources: dict[str, str] = {}  # of the images that the engine has
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    def put(self, samples: Iterable[Sample]) -> None:
        """Take in samples; their pictures are read at once.

        One that was dropped may come again, if whoever finished it is gone. Those that are still here are not begun twice.
        """
        dataset, size = self._assembly.dataset, self._assembly.size
        with self._changed:
            here = {sample.image_id for sample, _ in self._coming} | self._sources.keys()
            for sample in samples:
                self._dropped.discard(sample.image_id)
                if sample.image_id not in here:
                    self._coming.append((sample, self._pool.submit(dataset.load, sample, size)))
            self._changed.notify_all()

    def drop(self, keys: Iterable[str]) -> None:
        """Forget samples that the engine has not begun with."""
        with self._changed:
            waiting = {sample.image_id for sample, _ in self._coming}
            self._dropped.update(waiting.intersection(keys))

    def source(self, image_id: str) -> str:
        """Where an image that the engine is through with came from."""
        return self._sources.pop(image_id)

    def wait(self) -> None:
        """Wait until there is something. A worker that is not needed any more is ended with all its threads."""
        with self._changed:
            self._changed.wait_for(lambda: self._coming)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Job:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._coming, GRACE):
                    raise StopIteration
                sample, picture = self._coming.popleft()
                if sample.image_id in self._dropped:
                    self._dropped.discard(sample.image_id)
                    continue
                self._sources[sample.image_id] = sample.source
            try:
                return self._assembly.job(sample, picture.result())
            except BadImage as problem:
                del self._sources[sample.image_id]
                self._on_bad(sample, problem)
