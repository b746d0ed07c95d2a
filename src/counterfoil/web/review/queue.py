"""Which picture a reviewer sees next.

Every reviewer starts at a place of their own in the shuffled order, so that they rarely meet. A picture that somebody has
before them is theirs for a few minutes, so that none gets more votes than it needs; this is held in memory, as all that is
lost with it is that one may.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from counterfoil.core.lots import lot
from counterfoil.web.database import Item, Review, Reviewer, Vote

LEASE_SECONDS = 180.0
_FEW = 4  # candidates that are looked at first: one of them is nearly always free


_Ways = tuple[Select[int, str, int], Select[int, str, int]]


class Shown(NamedTuple):
    """A picture to show."""

    id: int
    class_name: str
    votes: int


class Leases:
    """Who has which picture before them."""

    def __init__(self, seconds: float = LEASE_SECONDS) -> None:
        self._seconds = seconds
        self._held: dict[int, dict[int, float]] = {}  # item → reviewer → until when
        self._of: dict[int, int] = {}  # reviewer → item
        self._turn = threading.Lock()

    def take(self, reviewer: int, items: Iterable[tuple[int, int]]) -> int | None:
        """The first of the items, given with the votes each still wants, that others leave room on."""
        with self._turn:
            self._let_go(reviewer)
            now = time.monotonic()
            for item, wanted in items:
                if sum(until > now for until in self._held.get(item, {}).values()) < wanted:
                    self._held.setdefault(item, {})[reviewer] = now + self._seconds
                    self._of[reviewer] = item
                    return item
            return None

    def __len__(self) -> int:
        return len(self._held)

    def _let_go(self, reviewer: int) -> None:
        item = self._of.pop(reviewer, None)
        if item is not None:
            holders = self._held.get(item, {})
            holders.pop(reviewer, None)
            if not holders:
                self._held.pop(item, None)


def next_item(
    connection: Connection, review: Review, reviewer: Reviewer, *, judged: int, items: int, leases: Leases
) -> Shown | None:
    """The picture to show now, or None when there is nothing left for this reviewer, who has judged so many already."""
    start = lot(reviewer.key) % max(items, 1)
    if _sentinel_is_due(review, reviewer, judged):
        sentinels = _unseen(connection, _SENTINELS, review, reviewer, start=start, limit=1)
        if sentinels:
            leases.take(reviewer.id, [])
            return sentinels[0]
    for limit in (_FEW, _FEW + len(leases)):  # of so many, one is free if any is
        found = {item.id: item for item in _unseen(connection, _WANTING, review, reviewer, start=start, limit=limit)}
        chosen = leases.take(reviewer.id, [(item.id, review.votes_wanted - item.votes) for item in found.values()])
        if chosen is not None:
            return found[chosen]
        if len(found) < limit:
            break
    return None


def votes_by(connection: Connection, reviewer: Reviewer) -> int:
    """How many pictures a reviewer has judged."""
    return connection.execute(_JUDGED, {"reviewer": reviewer.id}).scalar() or 0


def _sentinel_is_due(review: Review, reviewer: Reviewer, judged: int) -> bool:
    """One in every so many pictures, at a place that reviewers cannot foresee."""
    if not review.sentinel_every:
        return False
    block, place = divmod(judged, review.sentinel_every)
    return place == lot(f"{reviewer.secret} {block}") % review.sentinel_every


# Statements are put together once: doing so for every vote would take longer than the database does.
_JUDGED = select(func.count()).where(Vote.reviewer_id == bindparam("reviewer"), Vote.withdrawn.is_(None), Vote.skipped.is_(False))


def _both_ways(which: ColumnElement[bool]) -> _Ways:
    """Items that a reviewer has neither judged nor passed: from a place on, and before it."""
    seen = select(Vote.id).where(Vote.reviewer_id == bindparam("reviewer"), Vote.item_id == Item.id, Vote.withdrawn.is_(None))
    query = (
        select(Item.id, Item.class_name, Item.votes)
        .where(Item.review_id == bindparam("review"), which, ~seen.exists())
        .order_by(Item.position)
        .limit(bindparam("limit"))
    )
    return query.where(Item.position >= bindparam("start")), query.where(Item.position < bindparam("start"))


_SENTINELS = _both_ways(Item.expected.is_not(None))
_WANTING = _both_ways(Item.expected.is_(None) & Item.settled.is_(None) & (Item.votes < bindparam("wanted")))


def _unseen(
    connection: Connection,
    queries: _Ways,
    review: Review,
    reviewer: Reviewer,
    *,
    start: int,
    limit: int,
) -> list[Shown]:
    """What the reviewer has not seen, from their own starting place on and round again."""
    values = {"review": review.id, "reviewer": reviewer.id, "start": start, "wanted": review.votes_wanted}
    found: list[Shown] = []
    for query in queries:
        if len(found) < limit:
            rows = connection.execute(query, {**values, "limit": limit - len(found)})
            found += [Shown(*row) for row in rows]
    return found
