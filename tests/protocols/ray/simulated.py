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
    life: int = 0


@dataclass
class Call:
    worker: str
    items: list[str]


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
    _calls: dict[int, Call] = field(default_factory=dict)
    _events: list[tuple[float, int, str, int, int]] = field(default_factory=list)  # what happens to which worker's or call's life
    _number: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for number in range(self.size):
            self._workers[f"w{number}"] = Worker(self.seconds(number), [0.0] * self.slots(number))
        if self.kill_every:
            self._post(self.kill_every, "kill", 0, 0)

    def clock(self) -> float:
        return self.now

    def workers(self) -> Mapping[str, int]:
        return {name: len(each.free_at) for name, each in self._workers.items()}

    def send(self, worker: str, items: Sequence[str]) -> int:
        self._number += 1
        number = self._number
        self._calls[number] = Call(worker, list(items))
        self._begin(number)
        self.held[worker] = max(self.held.get(worker, 0), sum(each > self.now for each in self._workers[worker].ends.values()))
        return number

    def hand_in(self) -> None:
        for number, call in self._calls.items():
            self._post(self.now, "early", number, self._workers[call.worker].life)

    def wait(self) -> list[tuple[int, Answer | Lost]]:
        assert self._events, "no worker has anything to do: the dispatch would wait for ever"
        assert self.now < 1e5, "the dispatch does not come to an end"
        if self._events[0][0] > self.now + 1.0:
            self.now += 1.0
            return []
        when, _, what, number, life = heapq.heappop(self._events)
        self.now = max(self.now, when)
        if what == "kill":
            self._post(self.now + (self.kill_every or 0), "kill", 0, 0)
            return self._die(self._random.choice(list(self._workers)))
        call = self._calls.get(number)
        if call is None or self._workers[call.worker].life != life:
            return []
        if what == "death":
            return self._die(call.worker)
        del self._calls[number]
        own = self._workers[call.worker].ends
        done = [item for item in call.items if own[item] <= self.now]
        self.worked += done
        for item in done:
            del own[item]
        return [(number, Answer(dict.fromkeys(done)))]

    def _begin(self, number: int) -> None:
        call = self._calls[number]
        worker = self._workers[call.worker]
        for item in call.items:
            if item in worker.ends:
                continue  # it has it from a call that ended early
            slot = worker.free_at.index(min(worker.free_at))
            self.idle += max(self.now - worker.free_at[slot], 0.0) if worker.free_at[slot] else 0.0
            worker.ends[item] = worker.free_at[slot] = max(worker.free_at[slot], self.now) + worker.seconds
            if item in self.poison:
                self._post(worker.ends[item], "death", number, worker.life)
        ends = [worker.ends[item] for item in call.items]
        self._post(max(ends), "end", number, worker.life)
        if min(ends) + self.early < max(ends):
            self._post(max(self.now, min(ends) + self.early), "early", number, worker.life)

    def _die(self, name: str) -> list[tuple[int, Answer | Lost]]:
        worker = self._workers[name]
        self.deaths += 1
        worker.life += 1
        worker.ends, worker.free_at = {}, [self.now + RESTART] * len(worker.free_at)
        lost: list[tuple[int, Answer | Lost]] = []
        for number, call in list(self._calls.items()):
            if call.worker == name:
                del self._calls[number]
                lost.append((number, Lost("killed")))
        return lost

    def _post(self, when: float, what: str, number: int, life: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, number, life))


def items(count: int) -> Sequence[str]:
    return [f"i{number:04d}" for number in range(count)]
