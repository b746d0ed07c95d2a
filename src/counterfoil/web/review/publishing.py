"""Votes become verdicts of an oracle named `human`, beside those of the run's other oracles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlalchemy import update

from counterfoil.metrics.outcomes import part_name
from counterfoil.records import Picture, Verdict
from counterfoil.store import Run
from counterfoil.web.database import Database, Review
from counterfoil.web.database.models import now
from counterfoil.web.review.account import account, leave
from counterfoil.web.review.tally import Ballot, ballots

HUMAN = "human"


@dataclass(frozen=True)
class Published:
    """What was written."""

    oracle: str
    kept: int
    rejected: int
    undecided: int  # left out: votes are missing, or a tie is not settled


def oracle_name(run: Run) -> str:
    """The name the verdicts go by: `human`, or as the run itself calls people if it was made for them to judge."""
    own = part_name(run.spec.get("oracle"))
    return own if own.partition(":")[0] == HUMAN else HUMAN


def publish(database: Database, run: Run, review: Review) -> Published:
    """Write a verdict for every decided picture into the run's store. A later verdict replaces an earlier one."""
    with database.reading() as transaction:
        found = [(ballot, ballot.outcome(review.votes_wanted)) for ballot in ballots(transaction, review)]
    name = oracle_name(run)
    decided = [(ballot, outcome == "keep") for ballot, outcome in found if outcome in ("keep", "reject")]
    kept = sum(keep for _, keep in decided)
    written = Published(name, kept, len(decided) - kept, len(found) - len(decided))
    if decided:
        run.append(verdicts=[_verdict(ballot, name, keep) for ballot, keep in decided])
        with database.reading() as transaction:
            told = account(transaction, review, kept=written.kept, rejected=written.rejected, undecided=written.undecided)
        leave(run, told)
        with database.writing() as transaction:
            transaction.execute(update(Review).where(Review.id == review.id).values(published=now()))
    return written


def _verdict(ballot: Ballot, oracle: str, keep: bool) -> Verdict:
    item = ballot.item
    seen = item.label if keep or ballot.present else -1
    return Verdict(item.trial_id, cast(Picture, item.picture), oracle, keep, ballot.score, seen)
