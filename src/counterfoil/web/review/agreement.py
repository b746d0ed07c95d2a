"""How far the reviewers agree: altogether, question by question, class by class, and each with the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.records import Estimate
from counterfoil.metrics.agreement import Agreement, agreement, by_rater
from counterfoil.web.database import Review, Reviewer, Vote
from counterfoil.web.review.tally import Ballot, Said, ballots, standing_votes
from counterfoil.web.review.voting import sentinels_of

QUESTIONS: dict[str, tuple[str, Callable[[Said], bool | None]]] = {
    "keep": ("Keep the picture", lambda said: said.keeps),
    "present": ("The class is there", lambda said: said.present),
    "single": ("It is the only main object", lambda said: said.single),
    "usable": ("The picture is usable", lambda said: said.usable),
}

_RESAMPLES = 1000
_CLASS_RESAMPLES = 200  # a thousand classes are as many bootstraps


@dataclass(frozen=True)
class ClassRow:
    """Agreement on the pictures of one class."""

    name: str
    pictures: int
    kept: int
    rejected: int
    agreement: Agreement


@dataclass(frozen=True)
class ReviewerRow:
    """One reviewer's work."""

    reviewer: Reviewer
    votes: int
    skipped: int
    sentinels: int
    sentinels_right: int
    alpha: Estimate  # between this reviewer and the majority of the others
    agrees: Estimate | None  # per cent of the others on the same picture who said the same


@dataclass(frozen=True)
class Agreements:
    """All of it."""

    questions: dict[str, Agreement]
    classes: list[ClassRow]
    reviewers: list[ReviewerRow]


def agreements(transaction: Transaction, review: Review) -> Agreements:
    """Agreement of a review as it stands."""
    found = ballots(transaction, review)
    questions = {name: agreement(_answers(found, question), resamples=_RESAMPLES) for name, (_, question) in QUESTIONS.items()}
    return Agreements(questions, _classes(found, review), _reviewers(transaction, review))


def _answers(found: Iterable[Ballot], question: Callable[[Said], bool | None]) -> dict[Hashable, list[bool]]:
    """What each picture got in answer to a question; who could not tell is not heard."""
    said: dict[Hashable, list[bool | None]] = {ballot.item.id: [question(vote) for vote in ballot.votes] for ballot in found}
    return {item: [answer for answer in answers if answer is not None] for item, answers in said.items()}


def _classes(found: Iterable[Ballot], review: Review) -> list[ClassRow]:
    groups: dict[tuple[str, int], list[Ballot]] = {}
    for ballot in found:
        groups.setdefault((ballot.item.class_name, ballot.item.label), []).append(ballot)
    rows = []
    for (name, _), group in sorted(groups.items()):
        came_to = [ballot.outcome(review.votes_wanted) for ballot in group]
        agreed = agreement(_answers(group, lambda said: said.keeps), resamples=_CLASS_RESAMPLES)
        rows.append(ClassRow(name, len(group), came_to.count("keep"), came_to.count("reject"), agreed))
    return rows


def _reviewers(transaction: Transaction, review: Review) -> list[ReviewerRow]:
    votes = [(item, said) for item, said in standing_votes(transaction, review, counting=False) if said.keeps is not None]
    agrees = by_rater([(item, said.reviewer, said.keeps) for item, said in votes], resamples=_RESAMPLES)
    pictures: dict[int, dict[int, bool]] = {}
    for item, said in votes:
        pictures.setdefault(item, {})[said.reviewer] = bool(said.keeps)
    rows = []
    for reviewer in transaction.scalars(select(Reviewer).where(Reviewer.review_id == review.id).order_by(Reviewer.id)):
        given, right = sentinels_of(transaction.connection(), reviewer.id)
        alpha = agreement(_against_others(pictures, reviewer.id), resamples=_CLASS_RESAMPLES).alpha
        counted = {
            skipped: transaction.scalar(
                select(func.count()).where(Vote.reviewer_id == reviewer.id, Vote.withdrawn.is_(None), Vote.skipped.is_(skipped))
            )
            or 0
            for skipped in (False, True)
        }
        rows.append(ReviewerRow(reviewer, counted[False], counted[True], given, right, alpha, agrees.get(reviewer.id)))
    return rows


def _against_others(pictures: dict[int, dict[int, bool]], reviewer: int) -> dict[Hashable, list[bool]]:
    """A reviewer's answer beside that of most others, picture by picture; where those are tied there is nothing to compare."""
    pairs: dict[Hashable, list[bool]] = {}
    for item, said in pictures.items():
        if reviewer not in said:
            continue
        balance = sum(1 if keeps else -1 for who, keeps in said.items() if who != reviewer)
        if balance:
            pairs[item] = [said[reviewer], balance > 0]
    return pairs
