"""Coming in with a token, and leaving."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from counterfoil.web.database import Review
from counterfoil.web.pages import page
from counterfoil.web.routes.schemas import ERRORS, SessionOut
from counterfoil.web.security.visitors import COOKIE, Visitor, set_cookie, with_secret
from counterfoil.web.server import Here, Server, Who

router = APIRouter()

UNKNOWN = "This token is not known here. It may have been withdrawn; ask whoever sent it for a new link."


@router.get("/api/session", tags=["session"], response_model=SessionOut, responses=ERRORS)
def session(request: Request, response: Response, here: Here, visitor: Who) -> SessionOut:
    """Who the server takes you for, and the form token that changes must carry when a cookie is all you have."""
    if not visitor.secret and not visitor.by_header:
        visitor = with_secret(visitor)
        set_cookie(request, response, visitor.secret, days=here.settings.session_days)
    return SessionOut(owner=visitor.owner, name=visitor.name, form_token=visitor.form_token)


@router.get("/enter", include_in_schema=False)
def enter_page(request: Request, visitor: Who) -> Response:
    """Takes a token, from the end of the link or by hand."""
    return page(request, "enter.html", visitor, problem="")


@router.post("/enter", include_in_schema=False)
def enter_with_token(request: Request, here: Here, visitor: Who, token: Annotated[str, Form(max_length=200)]) -> Response:
    """Exchanges a token for a session."""
    entered = here.visitors.enter(token.strip())
    if entered is None:
        return page(request, "enter.html", Visitor(secret=visitor.secret), status=401, problem=UNKNOWN)
    known, secret = entered
    response = RedirectResponse(_home(here, known), status_code=303)
    set_cookie(request, response, secret, days=here.settings.session_days)
    return response


@router.post("/leave", include_in_schema=False)
def leave(here: Here, visitor: Who) -> Response:
    """Forgets the session."""
    here.visitors.end_session(visitor.secret)
    response = RedirectResponse("/" if here.settings.open else "/enter", status_code=303)
    response.delete_cookie(COOKIE, path="/")
    return response


def _home(here: Server, known: Visitor) -> str:
    if known.review is None:
        return "/"
    with here.database.reading() as transaction:
        return f"/review/{transaction.get_one(Review, known.review).key}"
