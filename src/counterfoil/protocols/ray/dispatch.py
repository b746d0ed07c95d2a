"""Hand items to workers until each is done once, whichever worker is lost. Bookkeeping alone: no process, no tensor.

A worker has one call at a time. It brings more items, and answers when enough of all that the worker holds are finished. Items
of a lost worker go out again. Those that were lost twice are suspects: they are tried at the end, with nothing else on their
worker, in halves, until a single one is left that ends its workers. Workers that have nothing to do get copies of what others
have held for long. The first answer counts.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from counterfoil.core.errors import RunFailed
from counterfoil.store.chunks import Chunk

if TYPE_CHECKING:
    from counterfoil.protocols.ray.cluster import Cluster

Item = TypeVar("Item")

ALONE = 4  # workers that an item may end with nothing else around
HOPELESS = 5  # items that may be about to be given up before any was finished
PERSISTENT = 10  # losses per worker in a row without anything being finished
PATIENCE = 1.5  # times as long as usual that a worker may hold an item before an idle one gets a copy


@dataclass(frozen=True)
class Answer:
    """Finished items by key, with what there is to say of each; and where they are, if on the disk."""

    done: Mapping[str, Any]
    chunk: Chunk | None = None


@dataclass(frozen=True)
class Lost:
    """A call whose worker was lost, with all that it held."""

    cause: str


@dataclass
class _Holder(Generic[Item]):
    """The items that a worker holds, with the times at which they were sent."""

    items: dict[str, tuple[Item, float]] = field(default_factory=dict)
    call: Hashable = None
    suspect: bool = False


@dataclass
class Dispatch(Generic[Item]):
    """One map over many items; `key` tells them apart, `largest` is how many a worker finishes before it answers."""

    pool: Cluster
    items: Iterable[Item]
    key: Callable[[Item], str]
    largest: int
    clock: Callable[[], float] = time.monotonic
    _held: dict[str, _Holder[Item]] = field(default_factory=dict)
    _ahead: deque[Item] = field(default_factory=deque)
    _lost_once: set[str] = field(default_factory=set)
    _suspects: deque[list[Item]] = field(default_factory=deque)
    _ended: Counter[str] = field(default_factory=Counter)  # workers, by the item that was alone with them
    _usual: float = 0.0  # seconds for which an item is held, as of late; 0 until one was finished
    _losses: int = 0  # since the last item was finished

    def __iter__(self) -> Iterator[tuple[list[Item], Answer | None]]:
        """Every item once: with the answer that it is in, or with None if it has ended its workers."""
        source = iter(self.items)
        while True:
            workers = self.pool.workers()
            room = sum(3 * max(self.largest, slots) for slots in workers.values()) or 1
            self._ahead.extend(islice(source, max(0, 2 * room - len(self._ahead))))
            idle = [worker for worker in workers if self._held.setdefault(worker, _Holder()).call is None]
            for index, worker in enumerate(idle):
                self._send(worker, workers[worker], len(idle) - index)
            if not (self._ahead or self._suspects or any(holder.items for holder in self._held.values())):
                return
            if ended := self.pool.wait():
                yield from self._take(*ended)

    def hand_in(self, seconds: float) -> Iterator[tuple[list[Item], Answer | None]]:
        """Collect what workers have finished when a map ends early and hand in within some seconds."""
        until = self.clock() + seconds
        self.pool.hand_in()
        while any(holder.call is not None for holder in self._held.values()) and self.clock() < until:
            if ended := self.pool.wait():
                yield from self._take(*ended)

    def _send(self, worker: str, slots: int, idle: int) -> None:
        """Begin the next call of a worker, which is one of some idle ones, unless there is nothing for it."""
        holder = self._held[worker]
        batch, count = max(self.largest, slots), len(holder.items)
        some: list[Item] = []
        if not holder.items:
            holder.suspect = False
        if self._ahead and not holder.suspect:  # slots are filled at once; of what then waits, the last go round one by one
            share, rest = -(-len(self._ahead) // idle), -(-len(self._ahead) // (2 * len(self._held)))
            wanted = max(min(slots - count, share), min(slots + 2 * batch - count, rest))
            some = [self._ahead.popleft() for _ in range(wanted)]
        elif self._suspects and not holder.items:
            some, holder.suspect = self._suspects.popleft(), True
        elif not holder.items:
            some = self._late()[:slots]
        new = {self.key(item): item for item in some}
        holder.items |= {key: (item, self.clock()) for key, item in new.items()}
        if holder.items:
            holder.call = self.pool.send(worker, new, min(batch, -(-len(holder.items) // 2)))

    def _late(self) -> list[Item]:
        """Items that one worker alone has held for long, the newest first: their owners come to those last."""
        known = Counter(key for holder in self._held.values() for key in holder.items)
        since = self.clock() - PATIENCE * self._usual
        rows = [row for holder in self._held.values() if not holder.suspect for row in holder.items.values()]
        late = [(item, sent) for item, sent in reversed(rows) if self._usual and sent <= since and known[self.key(item)] == 1]
        return [item for item, _ in sorted(late, key=lambda row: -row[1])]

    def _take(self, call: Hashable, answer: Answer | Lost) -> Iterator[tuple[list[Item], Answer | None]]:
        worker = next((name for name, holder in self._held.items() if holder.call == call), None)
        if worker is None:
            return
        holder = self._held[worker]
        holder.call = None
        if isinstance(answer, Lost):
            yield from self._send_again(self._held.pop(worker), answer)
            return
        new = {key: holder.items[key] for key in answer.done if key in holder.items}
        if new:
            took = sum(self.clock() - sent for _, sent in new.values()) / len(new)
            self._losses, self._usual = 0, 0.7 * self._usual + 0.3 * took if self._usual else took
        for each in self._held.values():
            for key in new:
                each.items.pop(key, None)
        yield [item for item, _ in new.values()], answer

    def _send_again(self, lost: _Holder[Item], why: Lost) -> Iterator[tuple[list[Item], Answer | None]]:
        elsewhere = {key for holder in self._held.values() for key in holder.items}
        left = {key: item for key, (item, _) in lost.items.items() if key not in elsewhere}
        if lost.suspect:
            yield from self._suspect(list(left.values()), why)
            return
        self._ahead.extendleft(reversed([item for key, item in left.items() if key not in self._lost_once]))
        if twice := [item for key, item in left.items() if key in self._lost_once]:
            self._suspects.append(twice)
        self._lost_once.update(left)
        self._losses += 1
        if self._losses > PERSISTENT * (len(self.pool.workers()) + 1):
            raise RunFailed(f"{self._losses} workers in a row were lost and finished nothing: {why.cause}")

    def _suspect(self, left: list[Item], why: Lost) -> Iterator[tuple[list[Item], Answer | None]]:
        """Try what was alone on a lost worker in halves; give up an item that has ended too many."""
        if len(left) != 1:
            half = -(-len(left) // 2)
            self._suspects.extendleft(group for group in (left[half:], left[:half]) if group)
            return
        key = self.key(left[0])
        self._ended[key] += 1
        if self._ended[key] == ALONE:
            yield left, None
        elif self._ended[key] == ALONE - 1:  # workers are lost for other reasons too: it is tried again at the very end
            self._suspects.append(left)
        else:
            self._suspects.appendleft(left)
        if not self._usual and (hopeless := sum(count >= ALONE - 1 for count in self._ended.values())) >= HOPELESS:
            raise RunFailed(f"{hopeless} items ended {ALONE - 1} workers each and none was finished; the last: {why.cause}")
