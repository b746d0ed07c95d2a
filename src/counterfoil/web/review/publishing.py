"""Votes become verdicts of an oracle named `human`, beside those of the run's other oracles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlalchemy import update

from counterfoil.core.records import Picture, Verdict
from counterfoil.metrics.outcomes import part_name
from counterfoil.protocols import reading
from counterfoil.store import Run
from counterfoil.store.later import HUMAN, by_people, shown
from counterfoil.web.database import Database, Review
from counterfoil.web.database.models import now
from counterfoil.web.review.account import account, leave
from counterfoil.web.review.tally import Ballot, ballots

Decided = tuple[Ballot, bool]
"""The votes on a picture, and whether it may stay by them."""


@dataclass(frozen=True)
class Published:
    """What was written."""

    oracle: str
    kept: int
    rejected: int
    undecided: int  # left out: votes are missing, or a tie is not settled
    changed: int = 0  # left out: the run has another picture now than people looked at

    @property
    def note(self) -> str:
        """What to know of pictures that have changed; empty without any."""
        if not self.changed:
            return ""
        return f"left out, {self.changed}: the run has another picture now, or none; begin a new review (--new) to have it judged"


def oracle_name(run: Run) -> str:
    """The name the verdicts go by: `human`, or as the run itself calls people if it was made for them to judge."""
    own = part_name(run.spec.get("oracle"))
    return own if by_people(own) else HUMAN


def publish(database: Database, run: Run, review: Review) -> Published:
    """Write a verdict for every decided picture into the run's store. A later verdict replaces an earlier one."""
    with database.reading() as transaction:
        found = [(ballot, ballot.outcome(review.votes_wanted)) for ballot in ballots(transaction, review)]
    name = oracle_name(run)
    decided = [(ballot, outcome == "keep") for ballot, outcome in found if outcome in ("keep", "reject")]
    looked = _append(run, name, decided) if decided else []
    kept = sum(keep for _, keep in looked)
    written = Published(name, kept, len(looked) - kept, len(found) - len(decided), len(decided) - len(looked))
    if looked:
        with database.reading() as transaction:
            told = account(transaction, review, kept=written.kept, rejected=written.rejected, undecided=written.undecided)
        leave(run, told)
        with database.writing() as transaction:
            transaction.execute(update(Review).where(Review.id == review.id).values(published=now()))
    return written


def _append(run: Run, oracle: str, decided: list[Decided]) -> list[Decided]:
    """Write the verdicts on pictures that are still those that people looked at, and answer which they are."""
    named = {ballot.item.trial_id for ballot, _ in decided}
    with reading.Run(run.path).appending() as rows:  # the pictures stay as they are meanwhile
        names = shown(trial for trial in run.trials if trial.trial_id in named)
        looked = [(each, keep) for each, keep in decided if names.get((each.item.trial_id, each.item.picture)) == each.item.file]
        rows.add(verdicts=[_verdict(ballot, oracle, keep) for ballot, keep in looked])
    return looked


def _verdict(ballot: Ballot, oracle: str, keep: bool) -> Verdict:
    item = ballot.item
    seen = item.label if keep or ballot.present else -1
    return Verdict(item.trial_id, cast(Picture, item.picture), oracle, keep, ballot.score, seen)
