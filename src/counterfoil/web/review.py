"""A review: the images to judge, shuffled, with known answers among them; which one comes next; votes and taking them back."""

from __future__ import annotations

import heapq
import math
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, case, func, insert, select, update
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import BadData, BadRun, UsageError
from counterfoil.core.naming import part_name, stable_hash
from counterfoil.core.records import Picture, Trial, Verdict
from counterfoil.core.tables import read_table
from counterfoil.protocols.reading import Run, open_run
from counterfoil.web.access import ServerSettings
from counterfoil.web.database import CastVote, Database, Invited, Review, ReviewItem, now

CONTROL = "random"  # the arm that is a control; people judge it only if asked to
HELD_MS = 180_000  # for so long an image stays with the reviewer who has it on the screen
KNOWN_TO_TELL = 4  # known answers before a reviewer is measured by them
_COLUMNS = ("trial_id", "picture", "class", "answer")


@dataclass(frozen=True)
class ReviewPlan:
    """Layout of a review."""

    votes: int = 3  # per image
    known_answers: float = 0.1  # share of the images a reviewer sees
    min_known_correct: float = 0.7  # share of known answers to get right for one's votes to count
    control: bool = False  # also the images of the random control
    limit: int | None = None  # images at most, drawn at random
    known: Path | None = None  # a CSV file of known answers; by default they are drawn from the run's clean images

    def __post_init__(self) -> None:
        limits = {"votes": (1, 99), "known_answers": (0, 0.5), "min_known_correct": (0, 1), "limit": (1, math.inf)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                wanted = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
                raise UsageError(f"{name.replace('_', ' ')} of a review: {value:g} is out of range; give {wanted}")


def create_review(db: Transaction, run: Run, *, name: str, plan: ReviewPlan) -> Review:
    """Lay out a review of a run and put it into the database."""
    items = items_of(run, plan)
    if not items:
        raise BadRun(f"{name}: has no generated image to review (the oracle accepted none, or the run has only begun)")
    known = []
    if plan.known_answers:
        known = _known_from_file(run, plan.known) if plan.known else known_from_run(run, len(items), plan)
    review = Review(
        key=secrets.token_hex(6),
        run=name,
        votes_wanted=plan.votes,
        known_every=round(1 / plan.known_answers) if known else 0,
        min_known_correct=plan.min_known_correct,
    )
    db.add(review)
    db.flush()
    # An image whose answer is known is not judged as well.
    rows = list({(row["trial_id"], row["which"], row["label"]): row for row in (*items, *known)}.values())
    rows.sort(key=lambda row: stable_hash(review.key, row["trial_id"], row["label"]))
    db.execute(insert(ReviewItem), [{**row, "review_id": review.id, "position": place} for place, row in enumerate(rows)])
    return review


def items_of(run: Run, plan: ReviewPlan) -> list[dict[str, Any]]:
    """The images to judge: the generated ones that the run kept."""
    # An image that a check rejected, as mining does, is stored but not part of the set.
    generated = (trial for trial in run.trials if trial.image and trial.ending != "rejected")
    rows = (_row(run, trial, "made", trial.label) for trial in generated if plan.control or trial.arm != CONTROL)
    return list(rows) if plan.limit is None else heapq.nsmallest(plan.limit, rows, key=lambda row: stable_hash(row["trial_id"]))


def known_from_run(run: Run, items: int, plan: ReviewPlan) -> list[dict[str, Any]]:
    """Images in which the run's oracle saw the class; about every second one the question names another class.

    They are source images or, in a run that painted all of its images, those that were too easy to be kept.
    """
    verdicts = run.verdicts(part_name(run.spec.get("oracle")))  # the last on each image holds; an abstention replaces none
    last: dict[tuple[str, str], Verdict] = {
        (each.trial_id, each.picture): each for each in verdicts if each.keeps_label is not None
    }
    count = max(4, math.ceil(items * plan.known_answers / (1 - plan.known_answers)))
    known = (
        (trial, which)
        for trial in run.trials
        if (which := "clean" if trial.clean else "made" if trial.ending == "rejected" and trial.image else "")
        and (verdict := last.get((trial.trial_id, which)))
        and verdict.keeps_label
        and verdict.predicted >= 0
    )
    drawn = heapq.nsmallest(count, known, key=lambda pair: stable_hash("sentinel", pair[0].trial_id))
    rows = []
    for number, (trial, which) in enumerate(drawn):
        others = [label for label, name in enumerate(run.classes) if name != run.classes[trial.label]] if number % 2 else []
        asked = others[stable_hash(trial.trial_id) % len(others)] if others else trial.label
        rows.append(_row(run, trial, which, asked, asked == trial.label))
    return rows


def _known_from_file(run: Run, path: Path) -> list[dict[str, Any]]:
    """Known answers from a file: trial_id, `picture`, class, answer (yes or no)."""
    trials = {trial.trial_id: trial for trial in run.trials}
    rows = []
    for line, entry in read_table(path, _COLUMNS, what="known answers"):
        trial, which = trials.get(entry["trial_id"]), entry["picture"]
        if trial is None or which not in ("clean", "reconstruction", "made"):
            raise BadData(f"{path}, line {line}: the run has no image {which!r} of {entry['trial_id']!r}")
        if entry["class"] not in run.classes or entry["answer"] not in ("yes", "no"):
            raise BadData(f"{path}, line {line}: give one of the run's classes, and yes or no")
        rows.append(_row(run, trial, which, run.classes.index(entry["class"]), entry["answer"] == "yes"))
    return rows


def _row(run: Run, trial: Trial, which: str, label: int, expected: bool | None = None) -> dict[str, Any]:
    if not 0 <= label < len(run.classes):
        raise BadRun(f"{trial.trial_id}: its class {label} is none of the run's {len(run.classes)}; the run is damaged")
    return {
        "trial_id": trial.trial_id,
        "which": which,
        "file": trial.shows(cast(Picture, which)),
        "label": label,
        "class_name": run.classes[label],
        "expected": expected,
        "votes": 0,
    }


@dataclass(frozen=True)
class ImageAnswer:
    """A reviewer's answer about an image. `present` is None for "can't tell", the others where they were not asked."""

    present: bool | None = None
    single: bool | None = None
    usable: bool | None = None
    comment: str = ""
    skipped: bool = False

    @classmethod
    def of(cls, vote: CastVote) -> ImageAnswer:
        """The answer that a row of the database holds."""
        return cls(vote.present, vote.single, vote.usable, vote.comment, vote.skipped)


class NotAsked(UsageError):
    """The reviewer was not asked about this image."""


class ReviewCounts(NamedTuple):
    """Progress of a reviewer and of the review."""

    mine: int  # images this reviewer has judged
    done: int  # images that have all their votes or were decided by the owner
    images: int  # known answers not counted


def next_item(db: Transaction, review: Review, me: Invited) -> ReviewItem | None:
    """Choose the image to show to a reviewer now, or None when nothing is left, and hold it for them for some minutes."""
    found = None
    if review.known_every:  # one image in so many, at a place that reviewers cannot foresee
        block, place = divmod(_judged_by(db, me.id), review.known_every)
        if place == stable_hash(f"{me.secret} {block}") % review.known_every:
            found = _first_unseen(db, review, me, ReviewItem.expected.is_not(None))
    if found is None:
        held = (Invited.item_id == ReviewItem.id, Invited.id != me.id, Invited.item_since > now() - HELD_MS)
        held_by_others = select(func.count()).select_from(Invited).where(*held).scalar_subquery()
        is_open = ReviewItem.expected.is_(None) & ReviewItem.decided_by_owner.is_(None)
        wants_votes = (ReviewItem.votes < review.votes_wanted) & (ReviewItem.votes + held_by_others < review.votes_wanted)
        found = _first_unseen(db, review, me, is_open & wants_votes)
    show(db, me.id, found)
    return found


def show(db: Transaction, reviewer: int, item: ReviewItem | None) -> None:
    """Note which image a reviewer has on the screen."""
    db.execute(update(Invited).where(Invited.id == reviewer).values(item_id=item.id if item else None, item_since=now()))


def _first_unseen(db: Transaction, review: Review, me: Invited, which: ColumnElement[bool]) -> ReviewItem | None:
    """The first item without an answer of this reviewer, from their own starting place on and round again."""
    start = stable_hash(me.key) % (db.scalar(select(func.count()).where(ReviewItem.review_id == review.id)) or 1)
    mine = (CastVote.reviewer_id == me.id, CastVote.item_id == ReviewItem.id, CastVote.withdrawn.is_(None))
    query = select(ReviewItem).where(ReviewItem.review_id == review.id, which, ~select(CastVote.id).where(*mine).exists())
    for half in (ReviewItem.position >= start, ReviewItem.position < start):
        if found := db.scalar(query.where(half).order_by(ReviewItem.position).limit(1)):
            return found
    return None


def vote(db: Transaction, review: Review, reviewer: int, *, item: int, answer: ImageAnswer, asked: bool = True) -> bool:
    """Enter an answer; False if the image has all its votes by now, so that the answer is not kept.

    A second answer about an image replaces the first; the same again changes nothing. `asked` demands that the image is on
    the reviewer's screen, or that they have answered about it before.
    """
    me = db.get_one(Invited, reviewer, with_for_update=True)  # one answer at a time
    asked_for = select(ReviewItem).where(ReviewItem.id == item, ReviewItem.review_id == review.id).with_for_update()
    found = db.scalar(asked_for)
    answered = select(CastVote.id).where(CastVote.reviewer_id == reviewer, CastVote.item_id == item).limit(1)
    if found is None or (asked and me.item_id != item and db.scalar(answered) is None):
        if found is not None and _is_full(review, found):  # the browser did not hear that its answer came too late
            return False
        raise NotAsked(f"image {item}: you were not asked about it; load the page again")
    standing = db.scalar(answered.with_only_columns(CastVote).where(CastVote.withdrawn.is_(None)))
    if standing is not None and ImageAnswer.of(standing) == answer:  # a browser that did not hear us and sends it again
        return True
    if not answer.skipped and (standing is None or standing.skipped) and _is_full(review, found):
        return False
    if standing is not None:
        standing.withdrawn = now()
        db.flush()
    db.execute(insert(CastVote).values(item_id=item, reviewer_id=reviewer, created=now(), **asdict(answer)))
    _recount(db, review, me, found)
    return True


def undo(db: Transaction, review: Review, reviewer: int) -> tuple[ReviewItem, ImageAnswer] | None:
    """Withdraw the reviewer's last answer: the image and that answer, or None if there is nothing to withdraw."""
    me = db.get_one(Invited, reviewer, with_for_update=True)
    standing = select(CastVote).where(CastVote.reviewer_id == reviewer, CastVote.withdrawn.is_(None))
    last = db.scalar(standing.order_by(CastVote.id.desc()).limit(1))
    if last is None:
        return None
    item = db.get_one(ReviewItem, last.item_id)
    last.withdrawn = now()
    db.flush()
    _recount(db, review, me, item)
    show(db, reviewer, item)
    return item, ImageAnswer.of(last)


def counts_of(db: Transaction, review: Review, reviewer: int | None = None) -> ReviewCounts:
    """Progress of a reviewer and of the review."""
    finished = (ReviewItem.votes >= review.votes_wanted) | ReviewItem.decided_by_owner.is_not(None)
    query = select(func.count(), func.sum(case((finished, 1), else_=0)))
    images, done = db.execute(query.where(ReviewItem.review_id == review.id, ReviewItem.expected.is_(None))).one()
    return ReviewCounts(_judged_by(db, reviewer) if reviewer is not None else 0, done or 0, images)


def known_correct(db: Transaction, reviewer: int) -> tuple[int, int]:
    """Count a reviewer's known answers, and the right ones among them. "Can't tell" is neither."""
    query = (
        select(CastVote.present, ReviewItem.expected)
        .join(ReviewItem, ReviewItem.id == CastVote.item_id)
        .where(*_votes_of(reviewer), CastVote.present.is_not(None), ReviewItem.expected.is_not(None))
    )
    answers = db.execute(query).all()
    return len(answers), sum(present == expected for present, expected in answers)


def _votes_of(reviewer: int) -> tuple[ColumnElement[bool], ...]:
    return CastVote.reviewer_id == reviewer, CastVote.withdrawn.is_(None), CastVote.skipped.is_(False)


def _judged_by(db: Transaction, reviewer: int) -> int:
    return db.scalar(select(func.count()).select_from(CastVote).where(*_votes_of(reviewer))) or 0


def _is_full(review: Review, item: ReviewItem) -> bool:
    return item.expected is None and (item.votes >= review.votes_wanted or item.decided_by_owner is not None)


def _recount(db: Transaction, review: Review, me: Invited, item: ReviewItem) -> None:
    """Count an item's votes again; after a known answer, see whether the reviewer still counts, and if not recount all theirs."""
    changed = ReviewItem.id == item.id
    if item.expected is not None:
        given, right = known_correct(db, me.id)
        trusted = given < KNOWN_TO_TELL or right >= review.min_known_correct * given
        if trusted == me.trusted:
            return
        me.trusted = trusted
        db.flush()
        changed = ReviewItem.id.in_(select(CastVote.item_id).where(*_votes_of(me.id)))
    standing = (CastVote.item_id == ReviewItem.id, CastVote.withdrawn.is_(None), CastVote.skipped.is_(False), Invited.trusted)
    votes = select(func.count(CastVote.id)).join(Invited, Invited.id == CastVote.reviewer_id).where(*standing).scalar_subquery()
    query = update(ReviewItem).where(changed, ReviewItem.expected.is_(None)).values(votes=votes)
    db.execute(query, execution_options={"synchronize_session": False})


@dataclass
class ReviewSession:
    """The review of one run for a command line: the newest one, or a new one."""

    run: Run
    database: Database
    review: Review
    is_new: bool

    @classmethod
    def of(cls, settings: ServerSettings, plan: ReviewPlan, *, new: bool = False) -> ReviewSession:
        """The review of the one run that the settings name."""
        (name,) = settings.only
        run, database = open_run(settings.root / name), Database(settings.database_url)
        with database.writing() as db:
            newest = select(Review).where(Review.run == name).order_by(Review.id.desc()).limit(1)
            found = None if new else db.scalar(newest)
            return cls(run, database, found or create_review(db, run, name=name, plan=plan), found is None)
