"""Who sends a request: the owner, a reviewer, or nobody we know."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace

from sqlalchemy import bindparam, delete, select
from starlette.requests import Request
from starlette.responses import Response

from counterfoil.web.database import Database, Reviewer, Session
from counterfoil.web.database.models import now
from counterfoil.web.review.people import by_token
from counterfoil.web.security.tokens import digest, form_token, same
from counterfoil.web.settings import Settings

COOKIE = "counterfoil"
_DAY = 24 * 3600 * 1000
_REMEMBERED = 5.0  # seconds; with several servers on one database, a withdrawn invitation may work that much longer
_MOST = 10_000


@dataclass(frozen=True)
class Visitor:
    """What is known of whoever sends a request."""

    owner: bool = False
    reviewer: Reviewer | None = None
    secret: str = ""  # of the cookie; empty without one
    by_header: bool = False  # came with an Authorization header, which no other site can send

    @property
    def review(self) -> int | None:
        """Id of the review they were invited to."""
        return None if self.reviewer is None else self.reviewer.review_id

    @property
    def name(self) -> str:
        """What a reviewer was invited as."""
        return "" if self.reviewer is None else self.reviewer.name

    @property
    def form_token(self) -> str:
        """What this visitor's forms carry."""
        return form_token(self.secret) if self.secret else ""


@dataclass(frozen=True)
class Credential:
    """What a request shows of itself: a token in its header, or a cookie."""

    token: str = ""
    secret: str = ""

    @classmethod
    def of(cls, request: Request) -> Credential:
        """What this request shows."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return cls(token=token.strip())
        secret = request.cookies.get(COOKIE, "")
        return cls(secret=secret if len(secret) <= 200 else "")


class Visitors:
    """Who is who. An answer is remembered for a few seconds, as a browser asks several things at once."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._known: dict[str, tuple[float, Visitor]] = {}

    def remembered(self, shown: Credential) -> Visitor | None:
        """The visitor, if they were here a moment ago or show nothing at all."""
        if not shown.token and not shown.secret:
            return Visitor(owner=self._settings.open)
        until, known = self._known.get(_mark(shown), (0.0, None))
        return known if until > time.monotonic() else None

    def find(self, shown: Credential) -> Visitor:
        """The visitor, from the database."""
        found = self._by_token(shown.token) if shown.token else self._by_cookie(shown.secret)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[_mark(shown)] = (time.monotonic() + _REMEMBERED, found)
        return found

    def forget(self) -> None:
        """Ask the database again: somebody was let in or out."""
        self._known.clear()

    def enter(self, token: str) -> tuple[Visitor, str] | None:
        """Exchange a token for a session: the visitor, and the secret for their cookie."""
        known = self._by_token(token)
        if not known.by_header:
            return None
        return known, self.start_session(owner=known.owner, reviewer=known.reviewer)

    def start_session(self, *, owner: bool, reviewer: Reviewer | None) -> str:
        """A new session; its secret goes into the cookie and only its hash is kept."""
        secret = secrets.token_urlsafe(32)
        session = Session(
            secret=digest(secret),
            owner=owner,
            reviewer_id=None if reviewer is None else reviewer.id,
            expires=now() + self._settings.session_days * _DAY,
        )
        with self._database.writing() as transaction:
            transaction.execute(delete(Session).where(Session.expires < now()))
            transaction.add(session)
        return secret

    def end_session(self, secret: str) -> None:
        """Forget a session."""
        with self._database.writing() as transaction:
            transaction.execute(delete(Session).where(Session.secret == digest(secret)))
        self.forget()

    def _by_cookie(self, secret: str) -> Visitor:
        everybody = self._settings.open
        with self._database.reading() as transaction:
            found = transaction.execute(_SESSION, {"secret": digest(secret), "now": now()}).first()
        if found is None:
            return Visitor(owner=everybody, secret=secret)
        session, reviewer = found
        stays = reviewer if reviewer is not None and reviewer.revoked is None else None
        return Visitor(session.owner or everybody, stays, secret)

    def _by_token(self, token: str) -> Visitor:
        if self._settings.token and same(digest(token), digest(self._settings.token)):
            return Visitor(owner=True, by_header=True)
        with self._database.reading() as transaction:
            reviewer = by_token(transaction, token)
        if reviewer is None:
            return Visitor(owner=False)
        return Visitor(self._settings.open, reviewer, by_header=True)


_SESSION = (
    select(Session, Reviewer)
    .outerjoin(Reviewer, Reviewer.id == Session.reviewer_id)
    .where(Session.secret == bindparam("secret"), Session.expires > bindparam("now"))
)


def _mark(shown: Credential) -> str:
    """What a visitor is remembered by; tokens themselves are not kept in memory for it."""
    return digest(f"token {shown.token}" if shown.token else f"cookie {shown.secret}")


def with_secret(visitor: Visitor) -> Visitor:
    """The visitor with a cookie of their own, which says nothing of who they are."""
    return replace(visitor, secret=secrets.token_urlsafe(32))


def set_cookie(request: Request, response: Response, secret: str, *, days: int) -> None:
    """Give the browser its secret, for this server's own pages only and out of reach of scripts."""
    # A proxy that adds TLS says so; whoever lies about it only keeps the cookie from themselves.
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    response.set_cookie(COOKIE, secret, max_age=days * 24 * 3600, path="/", httponly=True, samesite="lax", secure=secure)
