"""Turns a run into a review: the pictures to judge, shuffled, and sentinels whose answer is known."""

from __future__ import annotations

import heapq
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import BadData, BadRun, UsageError
from counterfoil.core.lots import lot
from counterfoil.core.records import Trial
from counterfoil.core.tables import read_table
from counterfoil.metrics.outcomes import part_name
from counterfoil.store import Run
from counterfoil.web.database import Item, Review

CONTROL = "random"  # the arm whose pictures are a control: they are judged only if asked for
_COLUMNS = ("trial_id", "picture", "class", "answer")
_ANSWERS = {"yes": True, "no": False}


@dataclass(frozen=True)
class Plan:
    """How a review is laid out."""

    votes: int = 3  # an image
    sentinels: float = 0.1  # share of what a reviewer sees
    bar: float = 0.7  # share of sentinels to get right for one's votes to count
    control: bool = False  # also the pictures of the random control
    limit: int | None = None  # pictures at most, drawn at random
    known: Path | None = None  # a CSV file of sentinels; by default they are drawn from the run's clean pictures

    def __post_init__(self) -> None:
        if not 1 <= self.votes <= 99:
            raise UsageError(f"{self.votes} votes an image make no review; ask for 1 to 99")
        if not 0 <= self.sentinels <= 0.5:
            raise UsageError(f"a share of {self.sentinels:g} sentinels is out of range; give 0 to 0.5")
        if not 0 <= self.bar <= 1:
            raise UsageError(f"a bar of {self.bar:g} is out of range; give 0 to 1")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"a review of {self.limit} pictures is none; give 1 or more")


def create_review(transaction: Transaction, run: Run, *, name: str, plan: Plan) -> Review:
    """Lay out a review of a run and put it into the database."""
    items = _items(run, plan)
    if not items:
        raise BadRun(f"{name}: has no made picture to review (the oracle accepted none, or the run has only begun)")
    sentinels = []
    if plan.sentinels:
        sentinels = _from_file(run, plan.known) if plan.known else _from_clean(run, len(items), plan)
    review = Review(
        key=secrets.token_hex(6),
        run=name,
        votes_wanted=plan.votes,
        sentinel_every=round(1 / plan.sentinels) if sentinels else 0,
        bar=plan.bar,
    )
    transaction.add(review)
    transaction.flush()
    # A picture whose answer is known is not judged as well.
    rows = list({(row["trial_id"], row["picture"], row["label"]): row for row in (*items, *sentinels)}.values())
    rows.sort(key=lambda row: lot(review.key, row["trial_id"], row["label"]))
    transaction.execute(insert(Item), [{**row, "review_id": review.id, "position": place} for place, row in enumerate(rows)])
    return review


def _items(run: Run, plan: Plan) -> list[dict[str, Any]]:
    # A picture that a check has turned away, as mining does, is stored but not part of what people are to look at.
    made = (trial for trial in run.trials if trial.image and trial.ending != "rejected")
    wanted = (trial for trial in made if plan.control or trial.arm != CONTROL)
    rows = (_row(run, trial, "made", trial.label) for trial in wanted)
    if plan.limit is None:
        return list(rows)
    return heapq.nsmallest(plan.limit, rows, key=lambda row: lot(row["trial_id"]))


def _from_clean(run: Run, items: int, plan: Plan) -> list[dict[str, Any]]:
    """Pictures in which the run's oracle saw the class: every second one is asked about under another class's name.

    They are source pictures or, in a run that painted all of its pictures, those that were too easy to be kept.
    """
    confirmed: dict[str, set[str]] = {"clean": set(), "made": set()}
    for verdict in run.verdicts(part_name(run.spec.get("oracle"))):
        if verdict.picture in confirmed and verdict.keeps_label and verdict.predicted >= 0:
            confirmed[verdict.picture].add(verdict.trial_id)
    count = max(4, math.ceil(items * plan.sentinels / (1 - plan.sentinels)))
    known = (
        (trial, picture)
        for trial in run.trials
        if (picture := "clean" if trial.clean else "made" if trial.ending == "rejected" and trial.image else "")
        and trial.trial_id in confirmed[picture]
    )
    drawn = heapq.nsmallest(count, known, key=lambda pair: lot("sentinel", pair[0].trial_id))
    rows = []
    for number, (trial, picture) in enumerate(drawn):
        others = [label for label, name in enumerate(run.classes) if name != run.classes[trial.label]] if number % 2 else []
        asked = others[lot(trial.trial_id) % len(others)] if others else trial.label
        rows.append({**_row(run, trial, picture, asked), "expected": asked == trial.label})
    return rows


def _from_file(run: Run, path: Path) -> list[dict[str, Any]]:
    """Sentinels that somebody wrote down: trial_id, picture, class, answer (yes or no)."""
    trials = {trial.trial_id: trial for trial in run.trials}
    rows = []
    for line, entry in read_table(path, _COLUMNS, what="sentinels"):
        trial, picture = trials.get(entry["trial_id"]), entry["picture"]
        if trial is None or picture not in ("clean", "reconstruction", "made"):
            raise BadData(f"{path}, line {line}: the run has no picture {picture!r} of {entry['trial_id']!r}")
        if entry["class"] not in run.classes or entry["answer"] not in _ANSWERS:
            raise BadData(f"{path}, line {line}: give one of the run's classes, and yes or no")
        row = _row(run, trial, picture, run.classes.index(entry["class"]))
        rows.append({**row, "expected": _ANSWERS[entry["answer"]]})
    return rows


def _row(run: Run, trial: Trial, picture: str, label: int) -> dict[str, Any]:
    if not 0 <= label < len(run.classes):
        raise BadRun(f"{trial.trial_id}: its class {label} is none of the run's {len(run.classes)}; the run is damaged")
    return {
        "trial_id": trial.trial_id,
        "picture": picture,
        "file": trial.image if picture == "made" else getattr(trial, picture),
        "label": label,
        "class_name": run.classes[label],
        "expected": None,
        "votes": 0,
    }
