"""Workers that come and go. The driver gives each an order a turn, and yields what they report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from counterfoil.core.errors import RunFailed
from counterfoil.protocols.ray.leases import ALONE, Leases
from counterfoil.store.chunks import Chunk

Item = TypeVar("Item")

UNREADY = 3  # workers a place that may die in a row while they build their parts
PERSISTENT = 10  # workers a place that may die in a row without finishing anything; finding one bad image takes several
SALVAGE = 20.0  # seconds in which workers may hand in what they have when a run is interrupted
HOPELESS = 5  # images that may end one worker after the other before any was finished


@dataclass(frozen=True)
class Finished:
    """One item that a worker is through with."""

    key: str
    value: Any = None  # what was made of it, where that does not go through the store
    validated: bool = False
    note: str = ""  # a line for people: why it was skipped


@dataclass(frozen=True)
class Order(Generic[Item]):
    """What a worker is told at the beginning of a turn."""

    stage: str = ""  # what is to be done with the items, where there is more than one thing
    over: tuple[str, ...] = ()  # the stages that are complete
    give: Sequence[Item] = ()  # to be worked on
    hand_in: Sequence[str] = ()  # finished items that are to be written
    drop: Sequence[str] = ()  # items that somebody else has finished
    flush: bool = False  # whether to stage what there is, however little


@dataclass(frozen=True)
class Report:
    """What a worker says at the end of a turn."""

    finished: Sequence[Finished] = ()
    staged: Chunk | None = None
    error: Exception | None = None  # what ended the run there


@dataclass(frozen=True)
class Described:
    """What a worker knows once its parts are built, and the driver need not build them for."""

    account: Mapping[str, Any]  # of the parts, for `run.json`
    classes: tuple[str, ...] = ()
    slots: int = 1  # items that it works on at a time
    room: int | None = None  # items that it is best given at a time, where that is its own affair
    spec: Mapping[str, Any] | None = None  # with what a part has filled in


@dataclass(frozen=True)
class Ready:
    """A worker has built its parts."""

    about: Any = None
    node: str = ""  # where it is


@dataclass(frozen=True)
class Death:
    """A worker is gone."""

    cause: str


Event = Ready | Report | Death


class Pool(Protocol):
    """Starts workers and carries orders and reports. A worker has one order at a time."""

    def start(self, *, replacing: bool = False) -> str:
        """Start a worker and answer its name; `wait` tells when it is ready."""
        ...

    def turn(self, worker: str, order: Order[Any]) -> None:
        """Give a worker its next order."""
        ...

    def wait(self) -> list[tuple[str, Event]]:
        """What has come in: at least one event, unless a while has passed."""
        ...

    def stop(self) -> None:
        """End all workers."""
        ...


@dataclass
class Crew:
    """A number of workers, made up again when one dies."""

    pool: Pool
    workers: int
    tell: Callable[[str], None] = lambda line: None
    _idle: list[str] = field(default_factory=list)  # ready, and without an order
    _ready: dict[str, Any] = field(default_factory=dict)  # all that have built their parts, and what they say of themselves
    _busy: set[str] = field(default_factory=set)  # those that have an order
    _owed: dict[str, list[str]] = field(default_factory=dict)  # finished, and to be handed in with the next order
    _unread: deque[tuple[str, Event]] = field(default_factory=deque)  # events that have come in, oldest first
    _first: Described | None = None  # what the others have to agree with
    _finished: int = 0  # items, ever
    _dead: int = 0  # workers since the last item was finished
    _dead_unready: int = 0  # workers since the last was ready
    _given_up: int = 0
    _remarked: bool = False  # whether it was said that workers' hardware differs

    def start(self) -> Any:
        """Start all workers; answers what the first that is ready says of itself."""
        for _ in range(self.workers):
            self.pool.start()
        while True:
            for worker, event in self._events():
                if isinstance(event, Ready):
                    self._welcome(worker, event)
                    self._idle.append(worker)
                    about = event.about
                elif isinstance(event, Death):
                    self._replace(worker, event)
                elif event.error is not None:
                    raise event.error
            if self._idle:
                return about

    def work(
        self, leases: Leases[Item], *, room: int, through_store: bool, stage: str = "", over: tuple[str, ...] = ()
    ) -> Iterator[tuple[list[Finished], Chunk | None, list[Item]]]:
        """All items through the workers: what was finished for the first time, what was staged, and what is given up.

        `room` is how many items a worker holds at most, unless it has said so itself. Where results go `through_store`, an item
        is done once a part with it was staged and the caller has taken that in; otherwise once the caller has taken in its value.
        """
        given: dict[str, set[str]] = {}  # what each worker may still be at, in its own eyes

        def order(worker: str) -> None:
            most = getattr(self._ready.get(worker), "room", None) or room
            items = leases.give(worker, most - leases.out(worker))
            own = given.setdefault(worker, set())
            drop = leases.stale(worker, own)
            own.difference_update(drop)
            own.update(leases.key(item) for item in items)
            flush = leases.suspected(worker) or not (items or leases.out(worker))
            self._busy.add(worker)
            self.pool.turn(worker, Order(stage, over, items, self._owed.pop(worker, []), drop, flush))

        if leases.over:
            return
        for worker in self._take_idle():
            order(worker)
        while not leases.over:
            for worker, event in self._events():
                self._busy.discard(worker)
                if isinstance(event, Ready):
                    self._welcome(worker, event)
                    order(worker)
                elif isinstance(event, Death):
                    given.pop(worker, None)
                    lost = leases.died(worker)
                    self._give_up(len(lost), leases.aside, event)
                    self._replace(worker, event)
                    if lost:
                        yield [], None, lost
                else:
                    if event.error is not None:
                        if event.staged is not None:
                            yield [], event.staged, []
                        raise event.error
                    mine = set(leases.finished(worker, [each.key for each in event.finished]))
                    given.setdefault(worker, set()).difference_update(mine)
                    self._count(len(mine))
                    self._owed[worker] = [each.key for each in event.finished if each.key in mine]
                    yield [each for each in event.finished if each.key in mine], event.staged, []
                    if event.staged is not None:
                        leases.handed_in(worker, event.staged.image_ids)
                    if not through_store:
                        leases.handed_in(worker, mine)
                    if leases.over:
                        del self._owed[worker]
                        self._idle.append(worker)
                    else:
                        order(worker)

    def salvage(self, leases: Leases[Item]) -> Iterator[Chunk]:
        """What workers have finished when a run ends early, as far as they hand it in within a while."""
        until, asked = time.monotonic() + SALVAGE, set()

        def ask(worker: str) -> None:
            asked.add(worker)
            self.pool.turn(worker, Order(hand_in=self._owed.pop(worker, []), flush=True))

        waiting = set(self._ready)
        for worker in waiting - self._busy:
            ask(worker)
        while waiting and time.monotonic() < until:
            try:
                for worker, event in self._events():
                    if isinstance(event, Report) and event.staged is not None:
                        yield event.staged
                    if isinstance(event, Report) and worker in waiting - asked:
                        self._owed[worker] = leases.finished(worker, [each.key for each in event.finished])
                        ask(worker)
                    else:
                        waiting.discard(worker)
            except RunFailed:  # nobody is left
                return

    def _events(self) -> Iterator[tuple[str, Event]]:
        """What has come in. Whoever is interrupted between two events leaves the second to the next who asks."""
        if not self._unread:
            self._unread.extend(self.pool.wait())
        while self._unread:
            yield self._unread.popleft()

    def _take_idle(self) -> list[str]:
        idle, self._idle = self._idle, []
        return idle

    def _welcome(self, worker: str, event: Ready) -> None:
        self._ready[worker] = event.about
        self._dead_unready = 0
        if isinstance(event.about, Described):
            self._first = self._first or event.about
            _check_alike(self._first, event)
            self._remark(self._first.account, event)

    def _remark(self, first: Mapping[str, Any], event: Ready) -> None:
        """Say once that workers' hardware or its free memory differs, and so the rounding of what they make."""
        one, other = _machine(first), _machine(event.about.account)
        if one != other and not self._remarked:
            self._remarked = True
            self.tell(f"workers differ in hardware, one has {one}, that on node {event.node} has {other}: so will their rounding")

    def _count(self, finished: int) -> None:
        if finished:
            self._finished, self._dead = self._finished + finished, 0

    def _replace(self, worker: str, event: Death) -> None:
        self._dead += 1
        self._dead_unready += worker not in self._ready
        self._ready.pop(worker, None)
        self._busy.discard(worker)
        self._owed.pop(worker, None)
        if self._dead > PERSISTENT * (self.workers + 1) or self._dead_unready > UNREADY * self.workers:
            raise RunFailed(f"{self._dead} workers in a row died and finished nothing; what was done is kept: {event.cause}")
        self.tell(f"a worker died and is replaced: {event.cause}")
        self.pool.start(replacing=True)

    def _give_up(self, items: int, aside: int, event: Death) -> None:
        self._given_up += items
        if items:  # the run is further for it
            self._dead = 0
        if not self._finished and self._given_up + aside >= HOPELESS:
            hopeless = self._given_up + aside
            raise RunFailed(f"{hopeless} images ended {ALONE} workers each and none was finished; the last: {event.cause}")


def _check_alike(first: Described, event: Ready) -> None:
    """Refuse a worker whose versions, code or weights are not those of the first: its numbers would be those of another run."""
    expected, found = _marks(first.account), _marks(event.about.account)
    other = next((name for name in {**expected, **found} if expected.get(name) != found.get(name)), None)
    if other is not None:
        raise RunFailed(
            f"workers differ in {other}: one has {expected.get(other)}, that on node {event.node} has {found.get(other)}; "
            "bring all nodes to the same versions and files"
        )


def _machine(account: Mapping[str, Any]) -> str:
    """What a worker computes on, as far as that is known to decide how it rounds."""
    hardware = account.get("hardware", {})
    card = str(hardware.get("gpu") or hardware.get("machine"))
    return f"{card} with {hardware['batch_size']} images per call" if "batch_size" in hardware else card


def _marks(account: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be the same everywhere; parts also tell of what they have been asked, which is not."""
    weights = {f"parts.{role}.weights": part.get("weights") for role, part in account.get("parts", {}).items()}
    return {**account.get("versions", {}), "code": account.get("code"), **account.get("functions", {}), **weights}
