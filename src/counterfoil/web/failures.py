"""What somebody sees when a request cannot be answered: one line, as a page for people and as JSON for programs."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException as BaseHTTPException
from starlette.responses import Response

from counterfoil.core.errors import BadRun, CounterfoilError, one_line
from counterfoil.web.catalogue import NotHere
from counterfoil.web.pages import page
from counterfoil.web.security.guard import LOG, TooLarge
from counterfoil.web.security.visitors import COOKIE, Credential, Visitor

TITLES = {
    401: "A token, please",
    403: "Not yours",
    404: "Nothing here",
    405: "Not like that",
    409: "Not now",
    413: "Too large",
    422: "That does not fit",
    500: "Something broke",
    503: "Not now",
}


def add_handlers(app: FastAPI) -> None:
    """Have the application answer every failure in one line."""

    @app.exception_handler(BaseHTTPException)
    def _http(request: Request, error: BaseHTTPException) -> Response:
        return _answer(request, error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(NotHere)
    def _not_here(request: Request, error: NotHere) -> Response:
        return _answer(request, 404, _sentence(request, error))

    @app.exception_handler(CounterfoilError)
    def _ours(request: Request, error: CounterfoilError) -> Response:
        busy = isinstance(error, BadRun) and "is writing here" in str(error)
        return _answer(request, 409 if busy else 422, _sentence(request, error))

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        said = "; ".join(_complaint(each) for each in error.errors())
        return _answer(request, 422, said.encode("utf-8", "replace").decode()[:500])

    @app.exception_handler(OperationalError)
    @app.exception_handler(InterfaceError)
    @app.exception_handler(PoolTimeout)
    def _database(request: Request, error: Exception) -> Response:
        LOG.error("database: %s", one_line(getattr(error, "orig", error)))
        return _answer(request, 503, "The database does not answer. Nothing was saved; try again in a moment.")

    @app.exception_handler(Exception)
    def _broken(request: Request, error: Exception) -> Response:
        if isinstance(error, TooLarge):  # the guard answers this one
            raise error
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _answer(request, 500, "This is a fault of the program; its log says where.")


def _complaint(each: Any) -> str:
    """What is wrong with one value. What was sent is not repeated, unknown names of fields included: it may hold a token."""
    if each["type"] == "extra_forbidden":
        return "a field that is not known here"
    where = ".".join(str(step) for step in each["loc"][1:]) or str(each["loc"][0])
    return f"{where}: {str(each['msg']).lower()}"


def _sentence(request: Request, error: Exception) -> str:
    said: str = request.app.state.server.catalogue.said(error)
    return said


def _answer(request: Request, status: int, sentence: str, headers: Any = None) -> Response:
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)
    if status == 401:
        return page(request, "enter.html", Visitor(secret=request.cookies.get(COOKIE, "")), status=401, problem="")
    known = request.app.state.server.visitors.remembered(Credential.of(request)) or Visitor()  # the database may be what failed
    title = TITLES.get(status, "Not possible")
    shown = page(request, "failure.html", known, status=status, forms=False, title=title, sentence=sentence)
    shown.headers.update(headers or {})
    return shown
