"""Rights: the owner has a token or uses this machine, reviewers have the link they were sent; sessions are signed cookies."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError
from counterfoil.web.database import Database, Invited, Review, now
from counterfoil.web.pages import page

STATE = ".counterfoil"
"""Folder next to the runs for the database, reports, the owner's token and the secret that signs sessions."""

VARIABLE = "COUNTERFOIL_TOKEN"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
LONGEST_NAME = 80
MOST_REVIEWERS = 2000
UNKNOWN = "This token is not known here. It may have been withdrawn; ask the sender for a new link."

routes = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class ServerSettings:
    """Folder of the runs, access, and place of the votes."""

    root: Path
    only: tuple[str, ...] = ()  # names of the runs to show; empty for all
    database: str = ""  # URL; empty for SQLite in the state folder
    token: str = field(default="", repr=False)  # the owner's; empty makes every user of this machine the owner
    host: str = "127.0.0.1"
    port: int = 8765
    https: bool = False  # behind a proxy that adds TLS: browsers send cookies over https only
    token_given: bool = False  # in a file or by the environment; any other is made, and kept in the state folder

    def __post_init__(self) -> None:
        try:
            what = "" if self.root.is_dir() else "not a folder" if self.root.exists() else "no such folder"
        except OSError as error:  # such as a name that is too long
            what = error.strerror or type(error).__name__
        if what:
            raise UsageError(f"{_shortened(self.root)}: {what}; give the folder that holds the runs")
        if not self.token and not is_loopback(self.host):
            raise UsageError(f"host {self.host}: others can reach it, so a token is needed; set {VARIABLE} or --token-file")
        if self.token and len(self.token) < 20:
            raise UsageError("the token is too short to keep anybody out; use 20 characters or more, or leave it to 'serve'")

    @property
    def state(self) -> Path:
        """The folder for the server's own files."""
        return self.root / STATE

    @property
    def database_url(self) -> str:
        """Place of the votes."""
        return self.database or f"sqlite:///{(self.state / 'web.sqlite').absolute()}"

    @property
    def open(self) -> bool:
        """Tell whether the server has no token: on loopback, where every visitor is its owner."""
        return not self.token

    @property
    def address(self) -> str:
        """The server's address as a link."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{'localhost' if self.host in ('0.0.0.0', '::') else host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server bound to `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def owner_token(state: Path, *, given: Path | None = None) -> str:
    """The owner's token: from a file, from the environment, or made once and kept in the state folder."""
    if given is not None:
        return _read_token(given)
    return os.environ.get(VARIABLE, "").strip() or _read_token(state / "token", make=True)


def session_secret(state: Path) -> str:
    """The secret that signs sessions: made once, and kept so that a restart ends no session."""
    return _read_token(state / "session-secret", make=True)


def _read_token(path: Path, *, make: bool = False) -> str:
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if make:
            raise UsageError(f"{path}: cannot be written or read ({error}); set {VARIABLE}, or free the folder") from None
        token = ""
    if not token:
        raise UsageError(f"{path}: holds no token; write one line of 20 characters or more into it")
    return token


def digest(token: str) -> str:
    """The hash that is kept of a token. Tokens are too random to be guessed from it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_same(token: str, kept: str) -> bool:
    """Compare a token with a hash, in a time that does not tell how far they agree."""
    return hmac.compare_digest(digest(token).encode(), kept.encode())


def invite(db: Transaction, review: Review, name: str) -> tuple[Invited, str]:
    """A reviewer of that name and the token of their link: a new one, or a new link for one who keeps their votes."""
    name = clean_name(name)
    known = select(Invited).where(Invited.review_id == review.id, Invited.name == name, Invited.is_owner.is_(False))
    secret = secrets.token_urlsafe(24)
    reviewer = db.scalar(known.limit(1)) or _add_reviewer(db, review, name)
    reviewer.secret, reviewer.revoked = digest(secret), None
    db.flush()
    return reviewer, f"{reviewer.key}.{secret}"


def join(db: Transaction, review: Review) -> Invited:
    """The owner as a reviewer: the same one each time, from whichever browser, so that they vote on an image once."""
    known = select(Invited).where(Invited.review_id == review.id, Invited.is_owner.is_(True)).limit(1)
    return db.scalar(known) or _add_reviewer(db, review, "Owner", is_owner=True)


def _add_reviewer(db: Transaction, review: Review, name: str, *, is_owner: bool = False) -> Invited:
    if (db.scalar(select(func.count()).where(Invited.review_id == review.id)) or 0) >= MOST_REVIEWERS:
        raise UsageError(f"this review has {MOST_REVIEWERS} reviewers, which is all it can have")
    nobodys = digest(secrets.token_urlsafe(24))
    reviewer = Invited(review_id=review.id, key=secrets.token_hex(6), name=name, secret=nobodys, is_owner=is_owner)
    db.add(reviewer)
    db.flush()
    return reviewer


def revoke(db: Transaction, review: Review, key: str) -> bool:
    """Withdraw an invitation; the votes stay. False if there is no such reviewer."""
    reviewer = db.scalar(select(Invited).where(Invited.key == key, Invited.review_id == review.id))
    if reviewer is not None and reviewer.revoked is None:
        reviewer.revoked = now()
    return reviewer is not None


def clean_name(name: str) -> str:
    """The name as one line of printable text."""
    text = " ".join("".join(each if unicodedata.category(each)[0] != "C" else " " for each in name).split())
    if not text or len(text) > LONGEST_NAME:
        raise UsageError(f"a reviewer's name has 1 to {LONGEST_NAME} characters, got {len(text)}")
    return text


@dataclass(frozen=True)
class Visitor:
    """The sender of a request."""

    owner: bool = False
    reviewer: Invited | None = None


def settings_of(request: Request) -> ServerSettings:
    """The settings of the server that a request came to."""
    found: ServerSettings = request.app.state.settings
    return found


def database_of(request: Request) -> Database:
    """The database of the server that a request came to."""
    found: Database = request.app.state.database
    return found


def visitor_of(request: Request) -> Visitor:
    """Find the sender of a request by the token in its header or by its session, on every request: revoking works at once."""
    settings = settings_of(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return _by_token(database_of(request), settings, token.strip())
    session: dict[str, Any] = request.session
    owner = settings.open or session.get("owner") == _owner_mark(settings)
    key, _, mark = str(session.get("reviewer", "")).partition(".")
    reviewer = _find(database_of(request), key) if mark else None
    return Visitor(owner, reviewer if reviewer is not None and mark == _reviewer_mark(reviewer) else None)


def _by_token(database: Database, settings: ServerSettings, token: str) -> Visitor:
    if settings.token and is_same(token, digest(settings.token)):
        return Visitor(owner=True)
    key, _, secret = token.partition(".")  # the first half finds the row, the second is compared in constant time
    reviewer = _find(database, key)
    right = is_same(secret, reviewer.secret if reviewer is not None else digest(""))
    return Visitor(reviewer=reviewer) if right and reviewer is not None else Visitor()


def _find(database: Database, key: str) -> Invited | None:
    if len(key) != 12 or not (key.isascii() and key.isalnum()):
        return None
    with database.reading() as db:
        return db.scalar(select(Invited).where(Invited.key == key, Invited.revoked.is_(None)))


def _owner_mark(settings: ServerSettings) -> str:
    """The mark in a session of the owner; another token ends such sessions."""
    return digest(f"session {settings.token}")[:32]


def _reviewer_mark(reviewer: Invited) -> str:
    """The mark in a session of a reviewer; a new link ends sessions of the old one."""
    return digest(f"session {reviewer.secret}")[:32]


Db = Annotated[Database, Depends(database_of)]
Who = Annotated[Visitor, Depends(visitor_of)]


def start_session(request: Request, *, owner: bool = False, reviewer: Invited | None = None) -> None:
    """Note in the browser's signed cookie that it belongs to the owner or a reviewer."""
    if owner:
        request.session["owner"] = _owner_mark(settings_of(request))
    if reviewer is not None:
        request.session["reviewer"] = f"{reviewer.key}.{_reviewer_mark(reviewer)}"


def owner(visitor: Who) -> Visitor:
    """Let only the owner in."""
    if visitor.owner:
        return visitor
    if visitor.reviewer is not None:
        raise HTTPException(403, "This page is for the owner of the server; your invitation is for the review only.")
    raise HTTPException(401, "This server asks for a token.")


def review_of(db: Transaction, key: str) -> Review:
    """The review that an address names, or 404."""
    found = db.scalar(select(Review).where(Review.key == key)) if key.isascii() and key.isalnum() else None
    if found is None:
        raise HTTPException(404, "There is no such review.")
    return found


@dataclass(frozen=True)
class Asked:
    """A reviewer and the review they were invited to."""

    review: Review
    me: Invited


def reviewer(key: str, database: Db, who: Who) -> Asked:
    """The review of an address and the reviewer who sends the request, if they were invited to it."""
    with database.reading() as db:
        review = review_of(db, key)
    if who.reviewer is None or who.reviewer.review_id != review.id:
        raise HTTPException(403 if who.owner else 401, "Reviewing needs an invitation to this review.")
    return Asked(review, who.reviewer)


Owner = Annotated[Visitor, Depends(owner)]
Reviewer = Annotated[Asked, Depends(reviewer)]


@routes.get("/enter")
def enter_page(request: Request, visitor: Who) -> Response:
    """A page that takes a token, from the end of the link or by hand."""
    return page(request, "enter.html", visitor, problem="")


@routes.post("/enter")
def enter(request: Request, database: Db, token: Annotated[str, Form(max_length=200)]) -> Response:
    """Exchange a token for a session."""
    known = _by_token(database, settings_of(request), token.strip())
    if not known.owner and known.reviewer is None:
        return page(request, "enter.html", known, status=401, problem=UNKNOWN)
    request.session.clear()
    start_session(request, owner=known.owner, reviewer=known.reviewer)
    if known.reviewer is None:
        return RedirectResponse("/", status_code=303)
    with database.reading() as db:
        key = db.get_one(Review, known.reviewer.review_id).key
    return RedirectResponse(f"/review/{key}", status_code=303)


@routes.post("/leave")
def leave(request: Request) -> Response:
    """End the session."""
    request.session.clear()
    return RedirectResponse("/" if settings_of(request).open else "/enter", status_code=303)


def _shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:199]}…"
