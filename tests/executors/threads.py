"""A pool of real workers in threads of this process, some of which die at a given turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from counterfoil.protocols.ray.crew import Death, Event, Order, Ready, Report


@dataclass
class ThreadPool:
    """`dies` says at which turn a worker, by its number, is lost with all it had; `end` lets go of a worker's own threads."""

    make: Callable[[], Any]
    dies: Mapping[int, int] = field(default_factory=dict)
    deaths: int = 0
    _workers: dict[str, Any] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)
    _calls: dict[Future[Any], tuple[str, bool]] = field(default_factory=dict)
    _building: threading.Lock = field(default_factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def start(self, *, replacing: bool = False) -> str:
        name = str(len(self._workers))
        self._workers[name] = self.make()
        self._calls[self._threads.submit(self._begun, self._workers[name], check=not replacing)] = (name, True)
        return name

    def _begun(self, worker: Any, *, check: bool) -> Any:
        with self._building:  # one at a time, as parts with random weights seed the process's one generator
            return worker.begin(check=check)

    def turn(self, worker: str, order: Order[Any]) -> None:
        self._turns[worker] = self._turns.get(worker, 0) + 1
        self._calls[self._threads.submit(self._workers[worker].turn, order)] = (worker, False)

    def wait(self) -> list[tuple[str, Event]]:
        done, _ = wait(self._calls, timeout=600, return_when=FIRST_COMPLETED)
        assert done, "the workers hang"
        found: list[tuple[str, Event]] = []
        for call in done:
            worker, building = self._calls.pop(call)
            answer = call.result()
            if self._turns.get(worker) == self.dies.get(int(worker), -1):
                self.deaths += 1
                found.append((worker, Death("it was to")))
            else:
                found.append((worker, Ready(answer) if building else answer))
                assert building or isinstance(answer, Report)
        return found

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
