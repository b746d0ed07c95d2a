"""Reviewers: invited by name, let in by a token that only they have."""

from __future__ import annotations

import secrets
import unicodedata

from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError
from counterfoil.web.database import Review, Reviewer
from counterfoil.web.database.models import now
from counterfoil.web.security.tokens import digest, same

LONGEST_NAME = 80
OWNER = "Owner"  # what the owner is called among the reviewers
MOST = 2000  # reviewers of one review


def invite(transaction: Transaction, review: Review, name: str) -> tuple[Reviewer, str]:
    """A new reviewer and their token, which is shown once: only its hash is kept."""
    name = cleaned(name)
    if (transaction.scalar(select(func.count()).where(Reviewer.review_id == review.id)) or 0) >= MOST:
        raise UsageError(f"this review has {MOST} reviewers, which is all it can have")
    secret = secrets.token_urlsafe(24)
    reviewer = Reviewer(review_id=review.id, key=secrets.token_hex(6), name=name, secret=digest(secret))
    transaction.add(reviewer)
    transaction.flush()
    return reviewer, f"{reviewer.key}.{secret}"


def invite_again(transaction: Transaction, review: Review, name: str) -> str:
    """A token for somebody of that name: a new reviewer, or a new token for one who was invited and keeps their votes."""
    known = _of_name(transaction, review, name)
    if known is None:
        return invite(transaction, review, name)[1]
    secret = secrets.token_urlsafe(24)
    known.secret, known.revoked = digest(secret), None
    return f"{known.key}.{secret}"


def the_owner(transaction: Transaction, review: Review) -> Reviewer:
    """The owner as a reviewer: the same one each time, from whichever browser, so that they vote on a picture once."""
    known = _of_name(transaction, review, OWNER)
    if known is None:
        return invite(transaction, review, OWNER)[0]
    known.revoked = None
    return known


def _of_name(transaction: Transaction, review: Review, name: str) -> Reviewer | None:
    query = select(Reviewer).where(Reviewer.review_id == review.id, Reviewer.name == cleaned(name)).limit(1)
    return transaction.scalar(query)


def by_token(transaction: Transaction, token: str) -> Reviewer | None:
    """Whose token it is. The part before the dot finds the row; the rest is compared in constant time."""
    key, _, secret = token.partition(".")
    reviewer = transaction.scalar(select(Reviewer).where(Reviewer.key == key)) if _is_key(key) else None
    right = same(digest(secret), reviewer.secret if reviewer is not None else digest(""))
    return reviewer if right and reviewer is not None and reviewer.revoked is None else None


def revoke(transaction: Transaction, review: Review, key: str) -> Reviewer | None:
    """Let a reviewer in no longer. The votes they gave stay."""
    reviewer = transaction.scalar(select(Reviewer).where(Reviewer.key == key, Reviewer.review_id == review.id))
    if reviewer is not None and reviewer.revoked is None:
        reviewer.revoked = now()
    return reviewer


def _is_key(text: str) -> bool:
    return len(text) == 12 and text.isascii() and text.isalnum()


def cleaned(name: str) -> str:
    """The name as one line of printable text."""
    text = " ".join("".join(each if unicodedata.category(each)[0] != "C" else " " for each in name).split())
    if not text or len(text) > LONGEST_NAME:
        raise UsageError(f"a reviewer's name has 1 to {LONGEST_NAME} characters, got {len(text)}")
    return text
