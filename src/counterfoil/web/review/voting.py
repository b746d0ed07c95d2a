"""Votes: given, changed, taken back. What a reviewer's votes count for follows from their sentinels."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import Connection, bindparam, case, func, insert, select, update
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError
from counterfoil.web.database import Item, Review, Reviewer, Vote
from counterfoil.web.database.models import now
from counterfoil.web.review.queue import Shown

SENTINELS_TO_TELL = 4  # known answers before a reviewer is measured by them


@dataclass(frozen=True)
class Answer:
    """What somebody says of a picture. `present` is None for "can't tell", the others where they were not asked."""

    present: bool | None = None
    single: bool | None = None
    usable: bool | None = None
    comment: str = ""
    skipped: bool = False


class NoSuchItem(UsageError):
    """The picture is not one of the reviewer's review."""


def vote(transaction: Transaction, review: Review, reviewer: int, *, item: int, answer: Answer) -> None:
    """Enter an answer. A second one for the same picture replaces the first; the same one again changes nothing."""
    connection = transaction.connection()
    trusted = _hold(connection, reviewer)
    asked = connection.execute(_ASKED, {"item": item, "review": review.id}).first()
    if asked is None:
        raise NoSuchItem(f"picture {item}: not one of this review")
    is_sentinel = asked.expected is not None
    standing = connection.execute(_STANDING, {"item": item, "reviewer": reviewer}).first()
    counts = 0
    if standing is not None:
        before = Answer(*standing[1:])
        if before == answer:  # a browser that did not hear our answer and asks again
            return
        connection.execute(_WITHDRAW, {"which": standing.id, "when": now()})
        counts -= not before.skipped
    connection.execute(_ENTER, {"item_id": item, "reviewer_id": reviewer, "created": now(), **asdict(answer)})
    counts += not answer.skipped
    if is_sentinel:
        _measure(connection, review, reviewer, trusted)
    elif counts and trusted:
        connection.execute(_COUNT, {"which": item, "by": counts})


def undo(transaction: Transaction, review: Review, reviewer: int) -> tuple[Shown, Answer] | None:
    """Take back the reviewer's last answer; the picture and what was said of it, or None if there is nothing to take back."""
    connection = transaction.connection()
    trusted = _hold(connection, reviewer)
    last = connection.execute(_LAST, {"reviewer": reviewer}).first()
    if last is None:
        return None
    item = connection.execute(_SHOWN, {"item": last.item_id}).one()
    said = Answer(*last[2:])
    connection.execute(_WITHDRAW, {"which": last.id, "when": now()})
    if item.expected is not None:
        _measure(connection, review, reviewer, trusted)
    elif trusted and not said.skipped:
        connection.execute(_COUNT, {"which": item.id, "by": -1})
    return Shown(item.id, item.class_name, item.votes), said


def sentinels_of(connection: Connection, reviewer: int) -> tuple[int, int]:
    """How many known answers a reviewer has given, and how many of them right. "Can't tell" is neither."""
    answers = connection.execute(_SENTINELS, {"reviewer": reviewer}).all()
    return len(answers), sum(present == expected for present, expected in answers)


def count_items(connection: Connection, review: Review) -> tuple[int, int]:
    """Pictures of a review, sentinels aside, and how many of them have all their votes or were settled."""
    pictures, done = connection.execute(_PROGRESS, {"review": review.id, "wanted": review.votes_wanted}).one()
    return pictures, done or 0


def _hold(connection: Connection, reviewer: int) -> bool:
    """Whether the reviewer counts; holds their row, so that they give one answer at a time, whatever tabs they have open."""
    return bool(connection.execute(_TRUSTED, {"reviewer": reviewer}).scalar_one())


def _measure(connection: Connection, review: Review, reviewer: int, trusted_before: bool) -> None:
    """After a sentinel, see whether the reviewer still counts; if that changes, so do all their votes."""
    given, right = sentinels_of(connection, reviewer)
    trusted = given < SENTINELS_TO_TELL or right >= review.bar * given
    if trusted == trusted_before:
        return
    connection.execute(update(Reviewer).where(Reviewer.id == reviewer).values(trusted=trusted))
    theirs = select(Vote.item_id).where(Vote.reviewer_id == reviewer, Vote.withdrawn.is_(None), Vote.skipped.is_(False))
    # In one order for everybody, so that two such changes at once cannot wait for each other.
    rows = select(Item.id).where(Item.id.in_(theirs), Item.expected.is_(None)).order_by(Item.id).with_for_update()
    for item in list(connection.scalars(rows)):
        connection.execute(_COUNT, {"which": item, "by": 1 if trusted else -1})


# Statements are put together once: doing so for every vote would take longer than the database does.
_TRUSTED = select(Reviewer.trusted).where(Reviewer.id == bindparam("reviewer")).with_for_update()
_ASKED = select(Item.expected).where(Item.id == bindparam("item"), Item.review_id == bindparam("review"))
_SHOWN = select(Item.id, Item.class_name, Item.votes, Item.expected).where(Item.id == bindparam("item"))
_SAID = (Vote.present, Vote.single, Vote.usable, Vote.comment, Vote.skipped)
_STANDING = select(Vote.id, *_SAID).where(
    Vote.reviewer_id == bindparam("reviewer"), Vote.item_id == bindparam("item"), Vote.withdrawn.is_(None)
)
_LAST = (
    select(Vote.id, Vote.item_id, *_SAID)
    .where(Vote.reviewer_id == bindparam("reviewer"), Vote.withdrawn.is_(None))
    .order_by(Vote.id.desc())
    .limit(1)
)
_ENTER = insert(Vote.__table__)  # type: ignore[arg-type]
_WITHDRAW = update(Vote.__table__).where(Vote.id == bindparam("which")).values(withdrawn=bindparam("when"))  # type: ignore[arg-type]
_COUNT = update(Item.__table__).where(Item.id == bindparam("which")).values(votes=Item.votes + bindparam("by"))  # type: ignore[arg-type]
_SENTINELS = (
    select(Vote.present, Item.expected)
    .join(Item, Item.id == Vote.item_id)
    .where(
        Vote.reviewer_id == bindparam("reviewer"),
        Vote.withdrawn.is_(None),
        Vote.skipped.is_(False),
        Vote.present.is_not(None),
        Item.expected.is_not(None),
    )
)
_PROGRESS = select(
    func.count(), func.sum(case(((Item.votes >= bindparam("wanted")) | Item.settled.is_not(None), 1), else_=0))
).where(Item.review_id == bindparam("review"), Item.expected.is_(None))
