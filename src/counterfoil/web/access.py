"""Settings, rights and pages: the owner has a token or uses this machine, reviewers have a link; sessions are signed cookies.

Everything in a page that comes from a run or a person is escaped.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment
from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError, one_line
from counterfoil.metrics.observations import unit_of
from counterfoil.report.html import templates_of
from counterfoil.store import runfile
from counterfoil.web.database import Database, Invited, Review, now

STATE = ".counterfoil"
"""Folder next to the runs for the database, reports, the owner's token and the secret that signs sessions."""

VARIABLE = "COUNTERFOIL_TOKEN"
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
            problem = "" if self.root.is_dir() else "not a folder" if self.root.exists() else "no such folder"
        except OSError as error:  # such as a name that is too long
            problem = error.strerror or type(error).__name__
        if problem:
            raise UsageError(f"{one_line(self.root)}: {problem}; give the folder that holds the runs")
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

    @classmethod
    def of(
        cls, folder: Path, *, host: str, port: int, database: str, token_file: Path | None, https: bool = False
    ) -> ServerSettings:
        """Settings for a folder of runs, or for the folder around a single run, with a token if one is given or needed."""
        folder = folder.absolute()
        only: tuple[str, ...] = ()
        with suppress(OSError):  # such as a name that is too long; the settings say so
            if (folder / runfile.NAME).exists():
                folder, only = folder.parent, (folder.name,)
        given = token_file is not None or bool(os.environ.get(VARIABLE))
        token = owner_token(folder / STATE, given=token_file) if given or not is_loopback(host) else ""
        return cls(folder, only, database, token, host, port, https=https, token_given=given)

    def welcome(self) -> str:
        """The address to open. The token goes to a terminal only: what is written elsewhere may be a log."""
        if self.open:
            return f"{self.address}/"
        if not self.token_given and sys.stdout.isatty():
            return f"{self.address}/enter#{self.token}"
        where = f"the one given by {VARIABLE} or --token-file" if self.token_given else f"it is in {self.state / 'token'}"
        return f"{self.address}/enter with the owner's token: {where}"

    @property
    def owner_mark(self) -> str:
        """The mark of the owner's sessions; another token ends them."""
        return digest(f"session {self.token}")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server bound to `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def owner_token(state: Path, *, given: Path | None = None) -> str:
    """The owner's token: from a file, from the environment, or made once and kept in the state folder."""
    if given is not None:
        return _read_secret(given)
    return os.environ.get(VARIABLE, "").strip() or _read_secret(state / "token", make=True)


def session_secret(state: Path) -> str:
    """The secret that signs sessions: made once, and kept so that a restart ends no session."""
    return _read_secret(state / "session-secret", make=True)


def _read_secret(path: Path, *, make: bool = False) -> str:
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if make:
            raise UsageError(f"{path}: cannot be written or read ({error}); set {VARIABLE}, or free the folder") from None
        secret = ""
    if not secret:
        raise UsageError(f"{path}: holds no token; write one line of 20 characters or more into it")
    return secret


def digest(token: str) -> str:
    """The hash that is kept of a token. Tokens are too random to be guessed from it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def invite(db: Transaction, review: Review, name: str) -> tuple[Invited, str]:
    """A reviewer of that name and the token of their link: a new one, or a new link for one who keeps their votes."""
    name, secret = clean_name(name), secrets.token_urlsafe(24)
    known = select(Invited).where(Invited.review_id == review.id, Invited.name == name, Invited.is_owner.is_(False))
    reviewer = db.scalar(known.limit(1)) or _add_reviewer(db, review, name)
    reviewer.secret, reviewer.revoked = digest(secret), None
    db.flush()
    return reviewer, f"{reviewer.key}.{secret}"


def owner_of(db: Transaction, review: Review) -> Invited | None:
    """The owner as a reviewer, once they have joined."""
    return db.scalar(select(Invited).where(Invited.review_id == review.id, Invited.is_owner.is_(True)).limit(1))


def join(db: Transaction, review: Review) -> Invited:
    """Make the owner a reviewer: the same one each time, from whichever browser, so that they vote on an image once."""
    return owner_of(db, review) or _add_reviewer(db, review, "Owner", is_owner=True)


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


def database_of(request: Request) -> Database:
    """The database of the server that a request came to."""
    found: Database = request.app.state.database
    return found


def visitor_of(request: Request) -> Visitor:
    """Find the sender of a request by the token in its header or its session, on every request: revoking works at once."""
    settings: ServerSettings = request.app.state.settings
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return _by_token(request, token.strip())
    owner = settings.open or request.session.get("owner") == settings.owner_mark
    return Visitor(owner, _reviewer_by(request, str(request.session.get("reviewer", ""))))


def _by_token(request: Request, token: str) -> Visitor:
    owners = request.app.state.settings.token
    if owners and hmac.compare_digest(digest(token), digest(owners)):
        return Visitor(owner=True)
    return Visitor(reviewer=_reviewer_by(request, token))


def _reviewer_by(request: Request, token: str) -> Invited | None:
    """The reviewer whose link has this token. Its first half finds the row, the second is compared in constant time."""
    key, _, secret = token.partition(".")
    if not (key.isascii() and key.isalnum()):
        return None
    with database_of(request).reading() as db:
        found = db.scalar(select(Invited).where(Invited.key == key, Invited.revoked.is_(None)))
    right = hmac.compare_digest(digest(secret), found.secret if found is not None else digest(""))
    return found if right else None


Db = Annotated[Database, Depends(database_of)]
Who = Annotated[Visitor, Depends(visitor_of)]


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


def reviewer(request: Request, key: str, database: Db, who: Who) -> Asked:
    """The review of an address and the reviewer who sends the request: invited to it, or the owner who joined it."""
    with database.reading() as db:
        review = review_of(db, key)
        joined = owner_of(db, review) if who.owner and "reviewer" not in request.session else None
    me = who.reviewer or joined
    if me is None or me.review_id != review.id:
        raise HTTPException(403 if who.owner else 401, "Reviewing needs an invitation to this review.")
    return Asked(review, me)


Owner = Annotated[Visitor, Depends(owner)]
Reviewer = Annotated[Asked, Depends(reviewer)]


def page(request: Request, template: str, visitor: Visitor, *, status: int = 200, **content: Any) -> Response:
    """A page for a visitor."""
    text = _environment().get_template(template).render(visitor=visitor, path=request.url.path, **content)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed number of decimals and a real minus sign, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _path(name: str) -> str:
    """A run's name as part of an address."""
    return quote(name.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = templates_of("counterfoil.web")
    filters: dict[str, Callable[..., str]] = {"number": number, "count": "{:,}".format, "unit": unit_of, "path": _path}
    environment.filters.update(filters)
    return environment


@routes.get("/enter")
def enter_page(request: Request, visitor: Who) -> Response:
    """A page that takes a token, from the end of the link or by hand."""
    return page(request, "enter.html", visitor, problem="")


@routes.post("/enter")
def enter(request: Request, database: Db, token: Annotated[str, Form(max_length=200)]) -> Response:
    """Exchange a token for a session."""
    known = _by_token(request, token.strip())
    if not known.owner and known.reviewer is None:
        return page(request, "enter.html", known, status=401, problem=UNKNOWN)
    request.session.clear()
    if known.reviewer is None:
        request.session["owner"] = request.app.state.settings.owner_mark
        return RedirectResponse("/", status_code=303)
    request.session["reviewer"] = token.strip()
    with database.reading() as db:
        key = db.get_one(Review, known.reviewer.review_id).key
    return RedirectResponse(f"/review/{key}", status_code=303)


@routes.post("/leave")
def leave(request: Request) -> Response:
    """End the session."""
    request.session.clear()
    return RedirectResponse("/" if request.app.state.settings.open else "/enter", status_code=303)
