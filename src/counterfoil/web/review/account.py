"""The account of a review that stays with its run: who judged, how well they did on sentinels, and how far they agreed.

The votes themselves are in the server's database. A set that is exported from the run later says by this file how it was checked.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.orm import Session as Transaction

from counterfoil.metrics.agreement import Agreement
from counterfoil.store import Run
from counterfoil.store.files import write_whole
from counterfoil.store.later import REVIEW
from counterfoil.web.database import Review
from counterfoil.web.review.agreement import agreements


def account(transaction: Transaction, review: Review, *, kept: int, rejected: int, undecided: int) -> dict[str, Any]:
    """The review in numbers, without anybody's name."""
    found = agreements(transaction, review)
    heard = [row for row in found.reviewers if row.reviewer.trusted and row.votes]
    return {
        "pictures": {"kept": kept, "rejected": rejected, "undecided": undecided},
        "votes_a_picture": review.votes_wanted,
        "reviewers": {"counted": len(heard), "left_out": sum(not row.reviewer.trusted for row in found.reviewers)},
        "sentinels": {
            "bar": review.bar,
            "answered": sum(row.sentinels for row in heard),
            "right": sum(row.sentinels_right for row in heard),
        },
        "agreement": {name: _numbers(each) for name, each in found.questions.items()},
    }


def leave(run: Run, content: dict[str, Any]) -> None:
    """Put the account beside the run's own files; a later one replaces it."""
    write_whole(run.path / REVIEW, (json.dumps(content, indent=2) + "\n").encode())


def _numbers(found: Agreement) -> dict[str, Any]:
    return {"alpha": found.alpha.to_dict(), "raw": found.raw.to_dict()}
