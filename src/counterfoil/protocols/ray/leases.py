"""Who works on what. Items go out in small leases that shrink towards the end, and come back finished or not at all.

An item is out with a worker until the worker says it is finished; then it is the worker's to hand in, and it is done once
that is on the disk. A worker that dies gives back what it had. What it was working on is under suspicion: those items go out
again by themselves, in halves, until a single one is left that ends its worker three times. That one is put aside, as workers die
of other causes too, and tried a last time when all else is done; if it ends that worker as well, it is given up.

When nothing is left to hand out and a worker will soon have idle slots, it gets copies of what others have had for long. Whoever
finishes first hands in; the other's work is dropped.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")

ALONE = 3  # times that an item may end a worker that had nothing else before it is put aside
PATIENCE = 1.5  # times as long as usual that an item may be worked on before somebody else gets a copy


@dataclass(frozen=True)
class _Out(Generic[Item]):
    """An item that a worker has to work on."""

    item: Item
    since: float
    turns: int  # 1 if it could be begun at once, 2 if all slots had to be free again first, and so on


@dataclass
class _Hand(Generic[Item]):
    """What one worker has."""

    out: dict[str, _Out[Item]] = field(default_factory=dict)  # by key
    finished: dict[str, Item] = field(default_factory=dict)  # to be handed in
    suspects: bool = False  # whether what is out is under suspicion


class Leases(Generic[Item]):
    """The book of one map over many items. Keys tell items apart."""

    def __init__(
        self,
        items: Iterable[Item],
        *,
        key: Callable[[Item], str],
        workers: int,
        most: int,
        slots: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` is how many items go out to a worker at once, `slots` how many it works on at a time."""
        self.key = key
        self._source, self._clock = iter(items), clock
        self._workers, self._most, self._slots = workers, most, slots
        self._ahead: deque[Item] = deque()
        self._groups: deque[list[Item]] = deque()  # under suspicion, each to be tried by itself
        self._alone: Counter[str] = Counter()  # workers that an item ended with nothing else around
        self._aside: deque[Item] = deque()  # those that ended too many, until all else is done
        self._hands: dict[str, _Hand[Item]] = {}
        self._usual = 0.0  # seconds that an item is worked on, as of late

    @property
    def over(self) -> bool:
        """Whether every item is done or given up."""
        return self.dry and not self._aside and not any(hand.out or hand.finished for hand in self._hands.values())

    @property
    def dry(self) -> bool:
        """Whether there is nothing left that has not been handed out, but for what was put aside."""
        self._look_ahead()
        return not self._ahead and not self._groups

    @property
    def aside(self) -> int:
        """How many items were put aside and wait for their last trial."""
        return len(self._aside)

    def out(self, worker: str) -> int:
        """How many items a worker has to work on."""
        return len(self._hand(worker).out)

    def suspected(self, worker: str) -> bool:
        """Whether what a worker has is under suspicion, so that it had better be handed in at once."""
        return self._hand(worker).suspects

    def give(self, worker: str, room: int) -> list[Item]:
        """What a worker that has room for so many items is to do next; nothing if it had better wait."""
        hand = self._hand(worker)
        if hand.suspects:
            if hand.out:
                return []
            hand.suspects = False
        if self._groups and not hand.out and not hand.finished:
            hand.suspects = True
            return self._hand_out(hand, self._groups.popleft())
        self._look_ahead()
        if self._ahead and room > 0:
            share = -(-len(self._ahead) // (2 * self._workers))  # the last ones go round one by one
            return self._hand_out(hand, [self._ahead.popleft() for _ in range(max(1, min(share, room, self._most)))])
        most = 2 * self._slots if self._usual else 1  # more than it works on, so that it does not run out of items in between
        if not self.dry or len(hand.out) >= most:
            return []
        if self._aside and not hand.finished and not any(other.out and not other.suspects for other in self._hands.values()):
            hand.suspects = True
            return self._hand_out(hand, [self._aside.popleft()])
        return self._hand_out(hand, self._copies(worker, min(room, most - len(hand.out))))

    def finished(self, worker: str, keys: Sequence[str]) -> list[str]:
        """Those of the keys that the worker is to hand in; the others somebody else has finished before."""
        hand, now = self._hand(worker), self._clock()
        mine = []
        for key in keys:
            if key not in hand.out:
                continue
            out = hand.out.pop(key)
            took = (now - out.since) / out.turns
            self._usual = 0.8 * self._usual + 0.2 * took if self._usual else took
            hand.finished[key] = out.item
            mine.append(key)
            for other in self._hands.values():
                other.out.pop(key, None)
        return mine

    def handed_in(self, worker: str, keys: Iterable[str]) -> None:
        """What a worker had finished is on the disk."""
        hand = self._hand(worker)
        for key in keys:
            hand.finished.pop(key, None)

    def died(self, worker: str) -> list[Item]:
        """A worker is gone: what it had goes back, and what has ended too many workers is given up and answered."""
        hand = self._hands.pop(worker, None)
        if hand is None:
            return []
        self._ahead.extendleft(reversed(list(hand.finished.values())))  # these did it no harm
        elsewhere = {key for other in self._hands.values() for key in other.out}
        lost = [out.item for key, out in hand.out.items() if key not in elsewhere]
        if len(lost) == 1 and hand.suspects:
            key = self.key(lost[0])
            self._alone[key] += 1
            if self._alone[key] > ALONE:
                return lost
            if self._alone[key] == ALONE:
                self._aside.append(lost[0])
                return []
        half = -(-len(lost) // 2) if hand.suspects else len(lost)
        self._groups.extendleft(group for group in (lost[half:], lost[:half]) if group)  # to the bottom of it first
        return []

    def stale(self, worker: str, keys: Iterable[str]) -> list[str]:
        """Those of the keys that a worker need not work on any longer, as another has finished them."""
        hand = self._hand(worker)
        return [key for key in keys if key not in hand.out and key not in hand.finished]

    def _hand(self, worker: str) -> _Hand[Item]:
        return self._hands.setdefault(worker, _Hand())

    def _hand_out(self, hand: _Hand[Item], items: list[Item]) -> list[Item]:
        now, before = self._clock(), len(hand.out)
        for number, item in enumerate(items, before):
            hand.out[self.key(item)] = _Out(item, now, turns=1 + number // self._slots)
        return items

    def _look_ahead(self) -> None:
        missing = 2 * self._workers * self._most - len(self._ahead)
        if missing > 0:
            self._ahead.extend(islice(self._source, missing))

    def _copies(self, worker: str, room: int) -> list[Item]:
        """What others have had for long and nobody else has, newest first: their owners come to those last."""
        now = self._clock()
        holders = Counter(key for hand in self._hands.values() for key in hand.out)
        late = [
            out.item
            for name, hand in self._hands.items()
            if name != worker and not hand.suspects
            for key, out in hand.out.items()
            if holders[key] == 1 and now - out.since >= self._usual * (out.turns - 1 + PATIENCE)
        ]
        return late[::-1][: max(room, 0)]
