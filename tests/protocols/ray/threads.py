"""A pool of real workers in threads of this process, some of which are lost after a number of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from counterfoil.protocols.ray.dispatch import Answer, Lost
from counterfoil.protocols.ray.workers import Described


@dataclass
class ThreadPool:
    """`dies` says with which of its answers a worker, by its number, is lost with all it has."""

    make: Callable[[], Any]
    size: int = 2
    dies: Mapping[int, int] = field(default_factory=dict)
    given: Any = None
    deadly: str = ""  # the image that ends any worker that takes it
    deaths: int = 0
    _workers: dict[str, Any] = field(default_factory=dict)
    _about: dict[str, Described] = field(default_factory=dict)
    _answers: dict[str, int] = field(default_factory=dict)
    _held: dict[str, list[str]] = field(default_factory=dict)  # ids of the images that a worker was ever sent
    _calls: dict[Future[Any], tuple[str, bool]] = field(default_factory=dict)  # worker, and whether the call ends it
    _building: threading.Lock = field(default_factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(24))

    def start(self) -> Described:
        for number in range(self.size):
            self._begin(str(number), check=True)
        return self._about["0"]

    def workers(self) -> Mapping[str, int]:
        return {name: about.slots for name, about in self._about.items()}

    def send(self, worker: str, items: Mapping[str, Any], at_least: int) -> Future[Any]:
        call = self._threads.submit(self._workers[worker].process, items, at_least)
        self._held[worker] = [*self._held.get(worker, []), *items]
        self._calls[call] = (worker, self.deadly in self._held[worker] if self.deadly else False)
        return call

    def wait(self) -> tuple[Future[Any], Answer | Lost]:
        done, _ = wait(self._calls, timeout=600, return_when=FIRST_COMPLETED)
        assert done, "the workers hang"
        ended = done.pop()
        worker, is_deadly = self._calls.pop(ended)
        answer = ended.result()
        self._answers[worker] = self._answers.get(worker, 0) + 1
        if self._answers[worker] != self.dies.get(int(worker), -1) and not is_deadly:
            return ended, answer
        self.deaths += 1
        self._begin(worker, check=False)
        return ended, Lost("it was to")

    def hand_in(self) -> None:
        for worker in self._workers.values():
            worker.hand_in()

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, name: str, *, check: bool) -> None:
        with self._building:  # one at a time, as parts with random weights seed the process's one generator
            self._held[name] = []
            self._workers[name] = self.make()
            self._about[name] = self._workers[name].build(check, self.given)
