"""Pictures for the engine, out of samples that come a few at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadImage
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.workspace import Source, Workspace

READERS = 4
PATIENCE = 0.5  # seconds that images too few for a tile wait for others: starting one costs the engine as much as a tile


class Feed:
    """An iterator of images without an end, a tile at a time. None says that there are too few for the moment."""

    def __init__(self, work: Workspace[Any], on_bad: Callable[[Sample, BadImage], None], *, tile: int) -> None:
        self._work, self._on_bad, self._tile = work, on_bad, tile
        self._changed = threading.Condition()
        self._coming: deque[tuple[Sample, Future[Tensor]]] = deque()
        self._dropped: set[str] = set()
        self._begun: set[str] = set()  # images that the engine has, or is through with but nobody has collected
        self._in_engine = 0
        self._due = 0  # of those that are coming, how many the engine gets without a pause
        self._since = 0.0  # when the oldest of the others came
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    def put(self, samples: Iterable[Sample]) -> None:
        """Take in samples; their pictures are read at once.

        One that was dropped may come again, if whoever finished it is gone. Those that are still here are not begun twice.
        """
        dataset, size = self._work.dataset, self._work.size
        with self._changed:
            if not self._coming:
                self._since = time.monotonic()
            here = {sample.image_id for sample, _ in self._coming} | self._begun
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

    def through(self) -> None:
        """Note that the engine is through with an image; said in its thread."""
        self._in_engine -= 1

    def finished(self, image_id: str) -> None:
        """Note that an image's outcome was collected: it may be given again."""
        self._begun.discard(image_id)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Source | None:
        while True:
            with self._changed:
                if not self._in_engine:  # the engine has nothing to do; a worker that is not needed any more is ended here
                    self._changed.wait_for(lambda: self._coming)
                if not self._ready():
                    return None
                self._due -= 1
                sample, picture = self._coming.popleft()
                if sample.image_id in self._dropped:
                    self._dropped.discard(sample.image_id)
                    continue
                self._begun.add(sample.image_id)
                self._in_engine += 1
            try:
                return self._work.source(sample, picture.result())
            except BadImage as problem:
                self._begun.discard(sample.image_id)
                self._in_engine -= 1
                self._on_bad(sample, problem)

    def _ready(self) -> bool:
        """Whether the engine is to have the next one now."""
        now = time.monotonic()
        if self._due == 0 and (len(self._coming) >= self._tile or not self._in_engine or now - self._since >= PATIENCE):
            self._due, self._since = min(len(self._coming), self._tile), now
        return self._due > 0
