"""A pool of made-up workers in made-up time, to try the dispatch of items without processes."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from counterfoil.protocols.ray.dispatch import Answer, Lost

RESTART = 0.5  # seconds


@dataclass
class Worker:
    """Works on one item after the other in each of its slots; an idle slot makes the others no faster."""

    seconds: float
    free_at: list[float]  # slot by slot
    ends: dict[str, float] = field(default_factory=dict)  # of the items that it has
    call: int = 0
    life: int = 0


@dataclass
class SimulatedPool:
    """Workers whose speed, deaths and bad items are given; time passes only in `wait`."""

    size: int = 2
    seconds: Callable[[int], float] = lambda number: 1.0
    slots: Callable[[int], int] = lambda number: 1
    poison: frozenset[str] = frozenset()
    kill_every: float | None = None
    early: float = float("inf")  # seconds after its first finished item at which a call answers with what it has
    seed: int = 0
    now: float = 0.0
    idle: float = 0.0  # seconds that slots have waited for an item, beginning and end left out
    held: dict[str, int] = field(default_factory=dict)  # items that each worker had at most
    worked: list[str] = field(default_factory=list)  # every item that was finished by anyone
    deaths: int = 0
    _workers: dict[str, Worker] = field(default_factory=dict)
    _events: list[tuple[float, int, str, str, int]] = field(default_factory=list)  # what happens to which worker's life
    _number: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for number in range(self.size):
            self._workers[f"w{number}"] = Worker(self.seconds(number), [0.0] * self.slots(number))
        if self.kill_every:
            self._post(self.kill_every, "kill", "")

    def clock(self) -> float:
        return self.now

    def workers(self) -> Mapping[str, int]:
        return {name: len(each.free_at) for name, each in self._workers.items()}

    def send(self, name: str, items: Mapping[str, str], at_least: int) -> int:
        worker = self._workers[name]
        assert not worker.call, "one call at a time"
        worker.call = self._number = self._number + 1
        for item in items:
            self._begin(name, item)
        self.held[name] = max(self.held.get(name, 0), sum(end > self.now for end in worker.ends.values()))
        ends = sorted(worker.ends.values())
        last = min(ends[min(at_least, len(ends)) - 1], ends[0] + self.early)
        self._post(max(last, self.now), "answer", name)
        return worker.call

    def hand_in(self) -> None:
        for name, worker in self._workers.items():
            if worker.call:
                self._post(self.now, "answer", name)

    def wait(self) -> tuple[int, Answer | Lost] | None:
        assert self._events, "no worker has anything to do: the dispatch would wait for ever"
        assert self.now < 1e5, "the dispatch does not come to an end"
        if self._events[0][0] > self.now + 1.0:
            self.now += 1.0
            return None
        when, _, what, name, life = heapq.heappop(self._events)
        self.now = max(self.now, when)
        if what == "kill":
            self._post(self.now + (self.kill_every or 0), "kill", "")
            return self._die(self._random.choice(list(self._workers)))
        worker = self._workers[name]
        if worker.life != life or not worker.call:
            return None
        if what == "death":
            return self._die(name)
        done = [item for item, end in worker.ends.items() if end <= self.now]
        self.worked += done
        for item in done:
            del worker.ends[item]
        call, worker.call = worker.call, 0
        worker.life += 1  # what else was to happen to this call
        for item in self.poison & set(worker.ends):
            self._post(worker.ends[item], "death", name)
        return call, Answer(dict.fromkeys(done))

    def _begin(self, name: str, item: str) -> None:
        worker = self._workers[name]
        slot = worker.free_at.index(min(worker.free_at))
        self.idle += max(self.now - worker.free_at[slot], 0.0) if worker.free_at[slot] else 0.0
        worker.ends[item] = worker.free_at[slot] = max(worker.free_at[slot], self.now) + worker.seconds
        if item in self.poison:
            self._post(worker.ends[item], "death", name)

    def _die(self, name: str) -> tuple[int, Answer | Lost] | None:
        worker = self._workers[name]
        self.deaths += 1
        call = worker.call
        self._workers[name] = Worker(worker.seconds, [self.now + RESTART] * len(worker.free_at), life=worker.life + 1)
        return (call, Lost("killed")) if call else None

    def _post(self, when: float, what: str, name: str) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, name, self._workers[name].life if name else 0))


def items(count: int) -> Sequence[str]:
    return [f"i{number:04d}" for number in range(count)]
