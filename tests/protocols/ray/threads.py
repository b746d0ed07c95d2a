"""A pool of real workers in threads of this process, some of which are lost after a number of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
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
    stage: str | None = None
    deaths: int = 0
    _workers: dict[str, Any] = field(default_factory=dict)
    _about: dict[str, Described] = field(default_factory=dict)
    _answers: dict[str, int] = field(default_factory=dict)
    _calls: dict[Future[Any], tuple[str, Sequence[Any]]] = field(default_factory=dict)
    _building: threading.Lock = field(default_factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(24))

    def start(self) -> Described:
        for number in range(self.size):
            self._begin(str(number), check=True)
        return self._about["0"]

    def workers(self) -> Mapping[str, int]:
        return {name: about.slots for name, about in self._about.items()}

    def send(self, worker: str, items: Sequence[Any]) -> Future[Any]:
        call = self._threads.submit(self._workers[worker].process, items, self.stage)
        self._calls[call] = (worker, items)
        return call

    def wait(self) -> list[tuple[Future[Any], Answer | Lost]]:
        done, _ = wait(self._calls, timeout=600, return_when=FIRST_COMPLETED)
        assert done, "the workers hang"
        found: list[tuple[Future[Any], Answer | Lost]] = []
        for ended in done:
            if ended not in self._calls:  # of a worker that was lost meanwhile
                continue
            worker, items = self._calls.pop(ended)
            answer = ended.result()
            self._answers[worker] = self._answers.get(worker, 0) + 1
            is_deadly = any(getattr(item, "image_id", "-") == self.deadly for item in items)
            if self._answers[worker] != self.dies.get(int(worker), -1) and not is_deadly:
                found.append((ended, answer))
                continue
            self.deaths += 1
            self._begin(worker, check=False)
            own = [each for each, (name, _) in self._calls.items() if name == worker]
            for call in own:
                del self._calls[call]
            found += [(call, Lost("it was to")) for call in (ended, *own)]
        return found

    def hand_in(self) -> None:
        for worker in self._workers.values():
            worker.hand_in()

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, name: str, *, check: bool) -> None:
        with self._building:  # one at a time, as parts with random weights seed the process's one generator
            self._workers[name] = self.make()
            self._about[name] = self._workers[name].build(check, self.given)
