"""The parts of a running server, and the questions every route asks first: who is it, and may they."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction
from starlette.concurrency import run_in_threadpool

from counterfoil.web.catalogue import Catalogue
from counterfoil.web.database import Database, Item, Review, Reviewer
from counterfoil.web.rendered import Sites
from counterfoil.web.review.queue import Leases
from counterfoil.web.security.tokens import same
from counterfoil.web.security.visitors import Credential, Visitor, Visitors
from counterfoil.web.settings import Settings

FORM_FIELD, FORM_HEADER = "form_token", "x-form-token"
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass
class Server:
    """What the routes work with."""

    settings: Settings
    database: Database
    catalogue: Catalogue
    sites: Sites
    visitors: Visitors
    leases: Leases = field(default_factory=Leases)
    _asked: dict[str, Asked] = field(default_factory=dict, init=False)

    def review(self, transaction: Transaction, key: str) -> Review:
        """The review that an address names, or 404."""
        found = transaction.scalar(select(Review).where(Review.key == key)) if key.isascii() and key.isalnum() else None
        if found is None:
            raise HTTPException(404, "There is no such review.")
        return found

    def asked(self, key: str) -> Asked:
        """What voting needs to know of a review. It never changes, so it is read once."""
        known = self._asked.get(key)
        if known is None:
            with self.database.reading() as transaction:
                review = self.review(transaction, key)
                items = transaction.scalar(select(func.count()).where(Item.review_id == review.id)) or 0
            if len(self._asked) >= 1000:
                self._asked.clear()
            known = self._asked[key] = Asked(review, items)
        return known


@dataclass(frozen=True)
class Asked:
    """A review, and how many items it has, sentinels included."""

    review: Review
    items: int


async def server(request: Request) -> Server:
    """The server that a request came to."""
    found: Server = request.app.state.server
    return found


Here = Annotated[Server, Depends(server)]


async def who(request: Request, here: Here) -> Visitor:
    """Who sends the request."""
    shown = Credential.of(request)
    known = here.visitors.remembered(shown)
    return known if known is not None else await run_in_threadpool(here.visitors.find, shown)


Who = Annotated[Visitor, Depends(who)]


async def owner(visitor: Who) -> Visitor:
    """Lets only the owner in."""
    if visitor.owner:
        return visitor
    if visitor.reviewer is not None:
        raise HTTPException(403, "This page is for the owner of the server; your invitation is for the review only.")
    raise HTTPException(401, "This server asks for a token.")


Owner = Annotated[Visitor, Depends(owner)]


def invited(visitor: Visitor, review: Review) -> Reviewer:
    """The reviewer who sends the request, if they were invited to this review."""
    if visitor.reviewer is None or visitor.review != review.id:
        raise HTTPException(403 if visitor.owner else 401, "Reviewing needs an invitation to this review.")
    return visitor.reviewer


async def protect(request: Request, visitor: Who) -> None:
    """Refuses changes that another site had a browser send: they lack the form token of the session."""
    if request.method in _READING or visitor.by_header:
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "This request comes from another site.")
    given = request.headers.get(FORM_HEADER, "")
    if not given and "form" in request.headers.get("content-type", ""):
        given = str((await request.form()).get(FORM_FIELD, ""))
    if not visitor.secret or not same(given.encode("utf-8", "replace").decode(), visitor.form_token):
        raise HTTPException(403, "The page has been open for too long or was opened elsewhere; load it again.")
