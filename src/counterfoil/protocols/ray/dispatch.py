"""Hand items to workers in calls until each is done once, whichever worker is lost. Bookkeeping alone: no process, no tensor.

A call takes some items and answers with those it has finished; one that has lost its worker comes back as `Lost`. Its items go
out again. Those that were lost twice are under suspicion: they are tried at the end, alone on a worker, in halves, until a single
one is left that ends its workers. Towards the end calls shrink, and idle workers get copies of what others have had for long.
The first answer counts.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from counterfoil.core.errors import RunFailed
from counterfoil.store.chunks import Chunk

Item = TypeVar("Item")

IN_FLIGHT = 3  # calls of a worker at a time, so that its slots stay full while one of them ends
ALONE = 3  # workers that an item may end with nothing else around before it is put off to the very end
HOPELESS = 5  # items that may end one worker after the other before any was finished
PERSISTENT = 10  # calls per worker that may be lost in a row without anything being finished
PATIENCE = 1.5  # times as long as usual that an item may take before an idle worker gets a copy


@dataclass(frozen=True)
class Answer:
    """Finished items of a call by key, with what there is to say of each; and where they are, if on the disk."""

    done: Mapping[str, Any]
    chunk: Chunk | None = None


@dataclass(frozen=True)
class Lost:
    """A call whose worker was lost."""

    cause: str


class Pool(Protocol):
    """Workers that take calls. One that is lost is started again by the owner of the pool."""

    def workers(self) -> Mapping[str, int]:
        """Workers that are ready, and how many items each works on at a time."""
        ...

    def send(self, worker: str, items: Sequence[Any]) -> Hashable:
        """Begin a call."""
        ...

    def wait(self) -> list[tuple[Hashable, Answer | Lost]]:
        """Calls that have ended, or nothing after a while. An error of the run is raised."""
        ...

    def hand_in(self) -> None:
        """Have all calls end with what is finished."""
        ...


@dataclass
class _Call(Generic[Item]):
    worker: str
    items: list[Item]
    since: float
    turns: int  # 1 if its last item could be begun at once, 2 if all slots had to be free again first, and so on
    suspect: bool = False
    copied: bool = False  # whether other calls may have items of it


@dataclass
class Dispatch(Generic[Item]):
    """One map over many items; `key` tells them apart, `largest` is how many go into one call."""

    pool: Pool
    items: Iterable[Item]
    key: Callable[[Item], str]
    largest: int
    clock: Callable[[], float] = time.monotonic
    _calls: dict[Hashable, _Call[Item]] = field(default_factory=dict)
    _unread: deque[tuple[Hashable, Answer | Lost]] = field(default_factory=deque)
    _done: set[str] = field(default_factory=set)  # of the items that two calls have, or had
    _ahead: deque[Item] = field(default_factory=deque)
    _lost_once: set[str] = field(default_factory=set)
    _suspects: deque[list[Item]] = field(default_factory=deque)
    _alone: Counter[str] = field(default_factory=Counter)  # workers that an item has ended with nothing else around
    _put_off: deque[Item] = field(default_factory=deque)
    _usual: float = 0.0  # seconds that an item takes, as of late
    _finished: bool = False  # whether anything was finished, ever
    _lost: int = 0  # calls since the last item was finished
    _given_up: int = 0

    def __iter__(self) -> Iterator[tuple[list[Item], Answer | None]]:
        """Every item once: with the answer that it is in, or with None if it has ended its workers."""
        self._source = iter(self.items)
        while self._open():
            own: dict[str, list[_Call[Item]]] = {worker: [] for worker in self.pool.workers()}
            for each in self._calls.values():
                if each.worker in own and self._is_open(each):
                    own[each.worker].append(each)
            for worker, slots in self.pool.workers().items():
                while some := self._next(worker, slots, own[worker]):
                    own[worker].append(self._send(worker, slots, *some))
            for call, answer in self._ended_calls():
                if call in self._calls:
                    yield from self._take(self._calls.pop(call), answer)

    def hand_in(self, seconds: float) -> Iterator[tuple[list[Item], Answer | None]]:
        """Collect what workers have finished when a map ends early and hand in within some seconds."""
        until = self.clock() + seconds
        self.pool.hand_in()
        while self._calls and self.clock() < until:
            for call, answer in self._ended_calls():
                if call in self._calls and isinstance(answer, Answer):
                    yield from self._accept(self._calls.pop(call), answer, again=False)
                else:
                    self._calls.pop(call, None)

    def _ended_calls(self) -> Iterator[tuple[Hashable, Answer | Lost]]:
        """Calls that have ended. Who is interrupted between two of them leaves the second to the next who asks."""
        if not self._unread:
            self._unread.extend(self.pool.wait())
        while self._unread:
            yield self._unread.popleft()

    def _open(self) -> bool:
        """Tell whether any item is neither done nor given up. Calls whose items are all done elsewhere are not waited for."""
        self._look_ahead()
        return bool(self._ahead or self._suspects or self._put_off) or any(map(self._is_open, self._calls.values()))

    def _is_open(self, call: _Call[Item]) -> bool:
        return not call.copied or bool(self._items_left(call))

    def _items_left(self, call: _Call[Item]) -> list[Item]:
        return [item for item in call.items if self.key(item) not in self._done]

    def _look_ahead(self) -> None:
        sizes = [max(self.largest, slots) for slots in self.pool.workers().values()] or [self.largest]
        missing = 2 * IN_FLIGHT * sum(sizes) - len(self._ahead)
        self._ahead.extend(islice(self._source, max(missing, 0)))

    def _next(self, worker: str, slots: int, own: Sequence[_Call[Item]]) -> tuple[list[Item], bool, bool] | None:
        """Items for a worker's next call, whether they are suspects, and whether they are a copy; None if it has enough."""
        if len(own) >= IN_FLIGHT or any(call.suspect for call in own):
            return None
        self._look_ahead()
        if self._ahead:
            share = -(-len(self._ahead) // (2 * len(self.pool.workers())))  # the last ones go round one by one
            return [self._ahead.popleft() for _ in range(min(len(self._ahead), share, max(self.largest, slots)))], False, False
        if own:
            return None
        if self._suspects:
            return self._suspects.popleft(), True, False
        others = [call for call in self._calls.values() if self._is_open(call)]
        if self._put_off and all(call.suspect for call in others):
            return [self._put_off.popleft()], True, False
        copies = self._copies(others)[: 2 * slots]
        return (copies, False, True) if copies else None

    def _copies(self, calls: Sequence[_Call[Item]]) -> list[Item]:
        """Items that one worker alone has had for long, the newest first: their owners come to those last."""
        now = self.clock()
        holders = Counter(self.key(item) for call in calls for item in self._items_left(call))
        found = []
        for call in sorted(calls, key=lambda each: -each.since):
            if self._finished and not call.suspect and now - call.since >= self._usual * (call.turns - 1 + PATIENCE):
                late = [item for item in self._items_left(call) if holders[self.key(item)] == 1]
                call.copied = call.copied or bool(late)
                found += late[::-1]
        return found

    def _send(self, worker: str, slots: int, items: list[Item], suspect: bool, copied: bool) -> _Call[Item]:
        held = sum(len(call.items) for call in self._calls.values() if call.worker == worker)
        call = _Call(worker, items, self.clock(), -(-(held + len(items)) // slots), suspect, copied)
        self._calls[self.pool.send(worker, items)] = call
        return call

    def _take(self, call: _Call[Item], answer: Answer | Lost) -> Iterator[tuple[list[Item], Answer | None]]:
        if isinstance(answer, Answer):
            yield from self._accept(call, answer, again=True)
            return
        elsewhere = {self.key(item) for other in self._calls.values() for item in other.items}
        left = [item for item in self._items_left(call) if self.key(item) not in elsewhere]
        if call.suspect:
            yield from self._suspect(left, answer)
        else:
            again = [item for item in left if self.key(item) not in self._lost_once]
            self._lost_once.update(map(self.key, again))
            self._ahead.extendleft(reversed(again))
            self._suspects += [twice] if (twice := [item for item in left if item not in again]) else []
        self._lost += 1
        if self._lost > PERSISTENT * (len(self.pool.workers()) + 1):
            raise RunFailed(f"{self._lost} calls in a row lost their workers and finished nothing: {answer.cause}")

    def _accept(self, call: _Call[Item], answer: Answer, *, again: bool) -> Iterator[tuple[list[Item], Answer | None]]:
        new = [item for item in self._items_left(call) if self.key(item) in answer.done]
        if new:
            self._finished, self._lost = True, 0
            took = (self.clock() - call.since) / call.turns
            self._usual = 0.7 * self._usual + 0.3 * took if self._usual else took
            self._done.update(map(self.key, new) if call.copied else ())
        yield new, answer
        left = [item for item in self._items_left(call) if self.key(item) not in answer.done]
        if again and left:  # it has ended early, to have what is finished committed; the rest is under way
            slots = self.pool.workers().get(call.worker)
            if slots is None:
                self._ahead.extendleft(reversed(left))
            else:
                self._send(call.worker, slots, left, call.suspect, call.copied)

    def _suspect(self, left: list[Item], lost: Lost) -> Iterator[tuple[list[Item], Answer | None]]:
        """Try the items of a lost call, which were alone on their worker, in halves; give up one that has ended too many."""
        if len(left) != 1:
            half = -(-len(left) // 2)
            self._suspects.extendleft(group for group in (left[half:], left[:half]) if group)  # to the bottom of it first
            return
        (item,) = left
        self._alone[self.key(item)] += 1
        if self._alone[self.key(item)] < ALONE:
            self._suspects.appendleft([item])
        elif self._alone[self.key(item)] == ALONE:
            self._put_off.append(item)  # workers are lost for other reasons too: it is tried again at the very end
        else:
            self._given_up, self._lost = self._given_up + 1, 0
            self._done.add(self.key(item))
            yield [item], None
        hopeless = self._given_up + len(self._put_off)
        if not self._finished and hopeless >= HOPELESS:
            raise RunFailed(f"{hopeless} items ended {ALONE} workers each and none was finished; the last: {lost.cause}")
