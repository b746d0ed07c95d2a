"""Results of a review: outcomes image by image, agreement, and verdicts written into the run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate, Picture, Verdict
from counterfoil.metrics.estimate import RESAMPLES, Floats, exact_reach
from counterfoil.protocols.reading import Run
from counterfoil.store.files import write_whole
from counterfoil.store.later import HUMAN, REVIEW, by_people
from counterfoil.web.database import CastVote, Database, Invited, Review, ReviewItem, now
from counterfoil.web.review import ImageAnswer, counts_of, known_correct

Outcome = Literal["keep", "reject", "tie", "open"]
_RESAMPLES = 1000
_CLASS_RESAMPLES = 200  # a thousand classes are as many bootstraps


def keeps(answer: ImageAnswer) -> bool | None:
    """Tell whether the image may stay, by one answer: the class is there, alone, and the image usable. None: can't tell."""
    return False if False in (answer.present, answer.single, answer.usable) else answer.present


Question = Callable[[ImageAnswer], bool | None]
QUESTIONS: dict[str, tuple[str, Question]] = {
    "keep": ("Keep the image", keeps),
    "present": ("The class is there", lambda answer: answer.present),
    "single": ("It is the only main object", lambda answer: answer.single),
    "usable": ("The image is usable", lambda answer: answer.usable),
}


@dataclass
class Ballot:
    """An image and the answers of reviewers who count."""

    item: ReviewItem
    answers: list[ImageAnswer] = field(default_factory=list)

    @property
    def decided(self) -> Counter[bool]:
        """Yes and no, without those who could not tell."""
        return Counter(keep for answer in self.answers if (keep := keeps(answer)) is not None)

    def outcome(self, wanted: int) -> Outcome:
        """By majority once all votes are there; where they are tied, or all could not tell, the owner decides."""
        if self.item.decided_by_owner is not None:
            return "keep" if self.item.decided_by_owner else "reject"
        if len(self.answers) < wanted:
            return "open"
        yes, no = self.decided[True], self.decided[False]
        return "tie" if yes == no else "keep" if yes > no else "reject"

    @property
    def score(self) -> float:
        """Share of yes among those who could tell."""
        if self.item.decided_by_owner is not None:
            return float(self.item.decided_by_owner)
        return self.decided[True] / max(self.decided.total(), 1)

    def verdict(self, oracle: str, keep: bool) -> Verdict:
        """The decision of people as the verdict of an oracle. An image may be rejected though its class is seen."""
        seen = Counter(answer.present for answer in self.answers)
        label = self.item.label if keep or seen[True] > seen[False] else -1
        return Verdict(self.item.trial_id, cast(Picture, self.item.which), oracle, keep, self.score, label)


def ballots(db: Transaction, review: Review) -> list[Ballot]:
    """Every image of a review, known answers aside."""
    query = select(ReviewItem).where(ReviewItem.review_id == review.id, ReviewItem.expected.is_(None))
    found = {item.id: Ballot(item) for item in db.scalars(query.order_by(ReviewItem.position))}
    for item, reviewer, answer in _standing(db, review):
        if item in found and reviewer.trusted:
            found[item].answers.append(answer)
    return list(found.values())


def _standing(db: Transaction, review: Review) -> list[tuple[int, Invited, ImageAnswer]]:
    """All standing votes with image and reviewer, known answers included."""
    query = (
        select(CastVote, Invited)
        .join(Invited, Invited.id == CastVote.reviewer_id)
        .where(Invited.review_id == review.id, CastVote.withdrawn.is_(None), CastVote.skipped.is_(False))
        .order_by(CastVote.id)
    )
    return [(cast_vote.item_id, reviewer, ImageAnswer.of(cast_vote)) for cast_vote, reviewer in db.execute(query)]


@dataclass(frozen=True)
class ReviewSummary:
    """A review and how far it is."""

    key: str
    run: str
    votes_wanted: int
    images: int
    done: int
    kept: int
    rejected: int
    tied: int
    published: bool
    reviewers_missing: int  # to be invited before an image can have all its votes


def summarise(db: Transaction, review: Review) -> ReviewSummary:
    """The review as it stands."""
    _, done, images = counts_of(db, review)
    outcomes = Counter(ballot.outcome(review.votes_wanted) for ballot in ballots(db, review))
    can_vote = db.scalar(select(func.count()).where(Invited.review_id == review.id, Invited.revoked.is_(None), Invited.trusted))
    missing = max(review.votes_wanted - (can_vote or 0), 0) if outcomes["open"] else 0
    return ReviewSummary(
        review.key, review.run, review.votes_wanted, images, done, outcomes["keep"], outcomes["reject"], outcomes["tie"],
        published=review.published is not None, reviewers_missing=missing,
    )  # fmt: skip


@dataclass(frozen=True)
class ClassAgreement:
    """Agreement on the images of one class."""

    name: str
    images: int
    kept: int
    rejected: int
    agreement: Agreement


@dataclass(frozen=True)
class ReviewerRow:
    """One reviewer's work."""

    reviewer: Invited
    votes: int
    skipped: int
    known: int
    known_correct: int
    alpha: Estimate  # between this reviewer and the majority of the others


@dataclass(frozen=True)
class Agreements:
    """Agreement by question, by class and by reviewer."""

    questions: dict[str, Agreement]
    classes: list[ClassAgreement]
    reviewers: list[ReviewerRow]

    def to_dict(self) -> dict[str, Any]:
        """Agreement by question, as plain values."""
        return {name: {"alpha": each.alpha.to_dict(), "raw": each.raw.to_dict()} for name, each in self.questions.items()}


def agreements(db: Transaction, review: Review) -> Agreements:
    """Agreement of a review as it stands."""
    found = ballots(db, review)
    questions = {name: agreement(_by_image(found, ask), resamples=_RESAMPLES) for name, (_, ask) in QUESTIONS.items()}
    groups: dict[tuple[str, int], list[Ballot]] = {}
    for ballot in found:
        groups.setdefault((ballot.item.class_name, ballot.item.label), []).append(ballot)
    classes = []
    for (name, _), group in sorted(groups.items()):
        outcomes = Counter(ballot.outcome(review.votes_wanted) for ballot in group)
        agreed = agreement(_by_image(group, keeps), resamples=_CLASS_RESAMPLES)
        classes.append(ClassAgreement(name, len(group), outcomes["keep"], outcomes["reject"], agreed))
    return Agreements(questions, classes, _by_reviewer(db, review))


def _by_image(found: Iterable[Ballot], question: Question) -> dict[Hashable, list[bool]]:
    """The answers to a question about each image; who could not tell is left out."""
    return {ballot.item.id: [said for each in ballot.answers if (said := question(each)) is not None] for ballot in found}


def _by_reviewer(db: Transaction, review: Review) -> list[ReviewerRow]:
    by_image: dict[int, dict[int, bool]] = {}
    votes: Counter[int] = Counter()
    for item, reviewer, answer in _standing(db, review):
        votes[reviewer.id] += 1
        if (keep := keeps(answer)) is not None:
            by_image.setdefault(item, {})[reviewer.id] = keep
    passed = select(CastVote.reviewer_id, func.count()).where(CastVote.withdrawn.is_(None), CastVote.skipped.is_(True))
    skipped = dict(db.execute(passed.group_by(CastVote.reviewer_id)).all())
    rows = []
    for reviewer in db.scalars(select(Invited).where(Invited.review_id == review.id).order_by(Invited.id)):
        known, right = known_correct(db, reviewer.id)
        alpha = agreement(_against_others(by_image, reviewer.id), resamples=_CLASS_RESAMPLES).alpha
        rows.append(ReviewerRow(reviewer, votes[reviewer.id], skipped.get(reviewer.id, 0), known, right, alpha))
    return rows


def _against_others(by_image: dict[int, dict[int, bool]], reviewer: int) -> dict[Hashable, list[bool]]:
    """A reviewer's answer and that of most others, image by image; where those are tied there is nothing to compare."""
    pairs: dict[Hashable, list[bool]] = {}
    for item, answers in by_image.items():
        balance = sum(1 if keep else -1 for who, keep in answers.items() if who != reviewer)
        if reviewer in answers and balance:
            pairs[item] = [answers[reviewer], balance > 0]
    return pairs


@dataclass(frozen=True)
class WrittenVerdicts:
    """Verdicts that were written into a run."""

    oracle: str
    kept: int
    rejected: int
    undecided: int  # left out: votes are missing, or a tie is not decided
    changed: int = 0  # left out: the run has another image now than people judged

    def __str__(self) -> str:
        text = f"{self.kept} images kept, {self.rejected} rejected, {self.undecided} undecided; verdicts of oracle {self.oracle}"
        if self.changed:
            text += f"; left out, {self.changed}: the run has another image now, or none (a new review, --new, can judge it)"
        return text


def oracle_name(run: Run) -> str:
    """The name of the verdicts' oracle: `human`, or as the run itself calls people if it was made for them to judge."""
    own = part_name(run.spec.get("oracle"))
    return own if by_people(own) else HUMAN


def publish(database: Database, run: Run, review: Review) -> WrittenVerdicts:
    """Write a verdict for every decided image into the run. A later verdict replaces an earlier one."""
    with database.reading() as db:
        found = [(ballot, ballot.outcome(review.votes_wanted)) for ballot in ballots(db, review)]
        agreed = agreements(db, review)
    name = oracle_name(run)
    decided = [(ballot, outcome == "keep") for ballot, outcome in found if outcome in ("keep", "reject")]
    written = _append(run, name, decided) if decided else []
    kept = sum(bool(each.keeps_label) for each in written)
    done = WrittenVerdicts(name, kept, len(written) - kept, len(found) - len(decided), len(decided) - len(written))
    if written:
        write_whole(run.path / REVIEW, (json.dumps(review_summary(review, agreed, done), indent=2) + "\n").encode())
        with database.writing() as db:
            db.execute(update(Review).where(Review.id == review.id).values(published=now()))
    return done


def review_summary(review: Review, agreed: Agreements, written: WrittenVerdicts) -> dict[str, Any]:
    """The review in numbers, without anybody's name: it stays with the run and goes into sets exported from it."""
    heard = [row for row in agreed.reviewers if row.reviewer.trusted and row.votes]
    return {
        "pictures": {"kept": written.kept, "rejected": written.rejected, "undecided": written.undecided},
        "votes_a_picture": review.votes_wanted,
        "reviewers": {"counted": len(heard), "left_out": sum(not row.reviewer.trusted for row in agreed.reviewers)},
        "sentinels": {
            "bar": review.min_known_correct,
            "answered": sum(row.known for row in heard),
            "right": sum(row.known_correct for row in heard),
        },
        "agreement": agreed.to_dict(),
    }


def _append(run: Run, oracle: str, decided: Sequence[tuple[Ballot, bool]]) -> list[Verdict]:
    """Write the verdicts on images that are still those that people judged, and answer which they are."""
    with run.appending() as rows:  # the images stay as they are meanwhile
        trials = {trial.trial_id: trial for trial in run.trials}
        written = []
        for ballot, keep in decided:
            trial, verdict = trials.get(ballot.item.trial_id), ballot.verdict(oracle, keep)
            if trial is not None and trial.shows(verdict.picture) == ballot.item.file:
                written.append(verdict)
        rows.add(verdicts=written)
    return written


Votes = Mapping[Hashable, Sequence[Hashable]]
"""The answers that each image got."""


@dataclass(frozen=True)
class Agreement:
    """Agreement over the images that two people or more have judged: Krippendorff's alpha, and the share of agreeing pairs.

    Alpha is 1 − observed / expected disagreement (Krippendorff, Content Analysis, 4th edition, chapter 12), for answers without
    an order. It is 1 where all agree and 0 where they agree no more than drawing answers at random would. With almost all saying
    yes alpha is low however often people agree, because chance would do nearly as well: read both numbers.
    """

    alpha: Estimate  # −1 to 1
    raw: Estimate  # per cent of pairs of votes on one image that agree


def agreement(votes: Votes, *, seed: int = 0, resamples: int = RESAMPLES) -> Agreement:
    """Agreement on all images, with 95 % intervals from a Bayesian bootstrap over images."""
    counts = [Counter(answers) for answers in votes.values() if len(answers) > 1]
    if not (n := len(counts)):
        nothing = Estimate(None, None, None, 0, "no image has two votes")
        return Agreement(nothing, nothing)
    answers = sorted({answer for row in counts for answer in row}, key=repr)
    table = np.array([[row[answer] for answer in answers] for row in counts], dtype=np.float64)  # (images, answers)
    given, squares = table.sum(axis=1), (table**2).sum(axis=1)
    # One weight per image and resample; the first row, of ones, is what was observed.
    weights = np.concatenate([np.ones((1, n)), np.random.default_rng(seed).standard_exponential((resamples, n))])
    raw = _interval(100 * (weights @ (squares - given)) / (weights @ (given * (given - 1))), n)
    if raw.low is not None and raw.high is not None and raw.value in (0, 100):  # it may yet fail on other images
        raw = Estimate(raw.value, max(0.0, raw.value - exact_reach(n)), min(100.0, raw.value + exact_reach(n)), n)
    if len(answers) < 2:
        return Agreement(Estimate(None, None, None, n, "all gave the same answer, which chance would too"), raw)
    observed, whole = weights @ ((given**2 - squares) / (given - 1)), weights @ given
    expected = (whole**2 - ((weights @ table) ** 2).sum(axis=1)) / np.maximum(whole - 1, 1e-12)
    alpha = 1 - np.divide(observed, expected, out=np.zeros_like(observed), where=expected > 1e-12)
    return Agreement(_interval(alpha, n), raw)


def _interval(values: Floats, n: int) -> Estimate:
    """The first value with the quantiles of the others."""
    middle = float(values[0])
    if n == 1:
        return Estimate(middle, None, None, n, "no interval from one image alone")
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    note = "all images alike, so the interval has no width" if abs(high - low) < 1e-12 else ""
    return Estimate(middle, min(round(low, 9), middle), max(round(high, 9), middle), n, note)
