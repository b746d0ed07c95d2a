"""A pool of made-up workers in made-up time, to try the crew's bookkeeping without processes."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from counterfoil.protocols.ray.crew import Death, Described, Event, Finished, Order, Ready, Report
from counterfoil.store.chunks import Chunk

TURN = 0.05


@dataclass
class Worker:
    """Works on one item after the other in each of its slots; an idle slot makes the others no faster."""

    seconds: float
    part: int
    free_at: list[float]  # slot by slot
    finishing: list[tuple[float, str]] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    buffer: list[str] = field(default_factory=list)
    dead: bool = False


@dataclass
class SimulatedPool:
    """Workers whose speed, deaths and bad items are given; time passes only in `wait`."""

    seconds: Callable[[int], float] = lambda number: 1.0
    poison: frozenset[str] = frozenset()
    kill_every: float | None = None
    part: int = 3
    slots: int = 1
    room: Callable[[int], int | None] = lambda number: None  # that a worker asks for itself
    seed: int = 0
    now: float = 0.0
    idle: float = 0.0  # seconds that slots have waited for an item, beginning and end left out
    held: dict[str, int] = field(default_factory=dict)  # items that each worker had at most
    worked: list[str] = field(default_factory=list)  # every item that was finished by anyone
    deaths: int = 0
    stopped: bool = False
    _workers: dict[str, Worker] = field(default_factory=dict)
    _events: list[tuple[float, int, str, Event]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._next_kill = self.kill_every or float("inf")

    def clock(self) -> float:
        return self.now

    def start(self, *, replacing: bool = False) -> str:
        number = len(self._workers)
        name = f"w{number}"
        self._workers[name] = Worker(self.seconds(number), self.part, [0.0] * self.slots)
        self._post(self.now + 0.5, name, Ready(Described({}, room=self.room(number)), name))
        return name

    def turn(self, worker: str, order: Order[str]) -> None:
        mine = self._workers[worker]
        for key in order.drop:
            mine.pending.discard(key)
            mine.finishing = [each for each in mine.finishing if each[1] != key or each[0] - mine.seconds <= self.now]
        for key in order.hand_in:
            mine.pending.remove(key)
            mine.buffer.append(key)
        for key in order.give:
            slot = mine.free_at.index(min(mine.free_at))
            self.idle += max(self.now - mine.free_at[slot], 0.0) if mine.free_at[slot] else 0.0
            mine.free_at[slot] = max(mine.free_at[slot], self.now) + mine.seconds
            mine.finishing.append((mine.free_at[slot], key))
        self.held[worker] = max(self.held.get(worker, 0), len(mine.finishing))
        bad = [when for when, key in mine.finishing if key in self.poison]
        if bad and min(bad) <= self.now + TURN:
            return self._die(worker, min(bad))
        staged = None
        if mine.buffer and (len(mine.buffer) >= mine.part or order.flush):
            staged = Chunk("x", {}, image_ids=tuple(mine.buffer))
            mine.buffer = []
        until = min([self.now + TURN, *(max(when, self.now) for when, _ in mine.finishing)])
        done = [key for when, key in mine.finishing if when <= until]
        mine.finishing = [each for each in mine.finishing if each[0] > until]
        mine.pending.update(done)
        self.worked += done
        self._post(until + 0.001, worker, Report([Finished(key, validated=True) for key in done], staged))

    def wait(self) -> list[tuple[str, Event]]:
        assert self._events, "nobody has anything to do: the crew would wait for ever"
        self.now = max(self.now, self._events[0][0])
        assert self.now < 1e5, "the crew does not come to an end"
        if self.now >= self._next_kill:
            self._next_kill += self.kill_every or 0
            if living := [name for name, each in self._workers.items() if not each.dead]:
                self._die(self._random.choice(living), self.now)
        found: list[tuple[str, Event]] = []
        while self._events and self._events[0][0] <= self.now:
            _, _, worker, event = heapq.heappop(self._events)
            if not self._workers[worker].dead or isinstance(event, Death):
                found.append((worker, event))
        return found

    def stop(self) -> None:
        self.stopped = True

    def _die(self, worker: str, when: float) -> None:
        self._workers[worker].dead = True
        self.deaths += 1
        self._post(when, worker, Death("killed"))

    def _post(self, when: float, worker: str, event: Event) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, worker, event))


def items(count: int) -> Sequence[str]:
    return [f"i{number:04d}" for number in range(count)]
