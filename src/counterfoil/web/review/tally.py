"""What the votes come to, picture by picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from counterfoil.web.database import Item, Review, Reviewer, Vote

Outcome = Literal["keep", "reject", "tie", "open"]


@dataclass(frozen=True)
class Said:
    """One standing vote of a reviewer who counts."""

    reviewer: int
    present: bool | None
    single: bool | None
    usable: bool | None
    comment: str = ""

    @property
    def keeps(self) -> bool | None:
        """Whether the picture may stay, by this vote: the class is there, alone, and the picture usable. None: can't tell."""
        if False in (self.present, self.single, self.usable):
            return False
        return self.present


@dataclass
class Ballot:
    """A picture and the votes on it."""

    item: Item
    votes: list[Said] = field(default_factory=list)

    @property
    def decided(self) -> Counter[bool]:
        """Yes and no, without those who could not tell."""
        return Counter(vote.keeps for vote in self.votes if vote.keeps is not None)

    def outcome(self, wanted: int) -> Outcome:
        """By majority once all votes are there; a tie, or nobody who could tell, is for the owner to settle."""
        if self.item.settled is not None:
            return "keep" if self.item.settled else "reject"
        if len(self.votes) < wanted:
            return "open"
        yes, no = self.decided[True], self.decided[False]
        return "tie" if yes == no else "keep" if yes > no else "reject"

    @property
    def score(self) -> float:
        """Share of yes among those who could tell."""
        if self.item.settled is not None:
            return float(self.item.settled)
        return self.decided[True] / max(self.decided.total(), 1)

    @property
    def present(self) -> bool:
        """Whether most see the class, usable or not."""
        seen = Counter(vote.present for vote in self.votes)
        return seen[True] > seen[False]


def ballots(transaction: Transaction, review: Review) -> list[Ballot]:
    """Every picture of a review, sentinels aside, with the votes of reviewers who count."""
    query = select(Item).where(Item.review_id == review.id, Item.expected.is_(None)).order_by(Item.position)
    found = {item.id: Ballot(item) for item in transaction.scalars(query)}
    for item_id, said in standing_votes(transaction, review, counting=True):
        if item_id in found:
            found[item_id].votes.append(said)
    return list(found.values())


def standing_votes(transaction: Transaction, review: Review, *, counting: bool) -> Sequence[tuple[int, Said]]:
    """All standing votes with the picture each is on, sentinels included; `counting` leaves out who fell below the bar."""
    query = (
        select(Vote.item_id, Vote.reviewer_id, Vote.present, Vote.single, Vote.usable, Vote.comment)
        .join(Reviewer, Reviewer.id == Vote.reviewer_id)
        .where(Reviewer.review_id == review.id, Vote.withdrawn.is_(None), Vote.skipped.is_(False))
        .order_by(Vote.id)
    )
    if counting:
        query = query.where(Reviewer.trusted.is_(True))
    return [(row[0], Said(*row[1:])) for row in transaction.execute(query)]


def outcomes(found: Sequence[Ballot], review: Review) -> Counter[Outcome]:
    """How many pictures came to what."""
    return Counter(ballot.outcome(review.votes_wanted) for ballot in found)
