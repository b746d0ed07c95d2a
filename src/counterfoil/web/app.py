"""The application: its parts, limits and headers of every request, failures as one line; and the server it runs in."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from anyio import to_thread
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as BaseHTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterfoil.core.errors import BadRun, CounterfoilError, UsageError, one_line
from counterfoil.web import access, review_pages, runs, sites
from counterfoil.web.access import ServerSettings, Visitor, page, session_secret
from counterfoil.web.database import Database

LOG = logging.getLogger("counterfoil.web")

COOKIE = "counterfoil"
SESSION_SECONDS = 30 * 24 * 3600
THREADS = 8
BODY_LIMIT = 64 * 1024  # bytes of a request
BODY_SECONDS = 30.0  # for each piece of a body
HEAD_SECONDS = 15.0  # from a connection or the first byte of a request to the end of its head
CONNECTIONS = 1000
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
TOO_LARGE = f"The request is larger than {BODY_LIMIT} bytes, the most this server takes in."
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def create_app(settings: ServerSettings) -> FastAPI:
    """The application for these settings, with its database open."""
    database = Database(settings.database_url)
    rendered = sites.Sites(settings.state / "sites")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Few threads: they share one interpreter, and each more that wants it makes all others wait longer.
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        rendered.close()
        database.close()

    # Its description would load scripts from elsewhere, and tells strangers what there is.
    app = FastAPI(title="Counterfoil", openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.state.settings, app.state.database, app.state.sites = settings, database, rendered
    app.state.catalogue = runs.Catalogue(settings.root, settings.only)
    for module in (review_pages, runs, sites, access):
        app.include_router(module.routes)
    packages = [("counterfoil.web", "static"), ("counterfoil.report", "static")]
    app.mount("/static", StaticFiles(packages=packages))  # type: ignore[arg-type]
    app.add_route("/favicon.ico", lambda _: RedirectResponse("/static/icon.svg"))  # pages that name no icon, as reports
    _add_handlers(app)
    app.add_middleware(
        SessionMiddleware,
        secret_key=session_secret(settings.state),
        session_cookie=COOKIE,
        max_age=SESSION_SECONDS,
        same_site="lax",
        https_only=settings.https,
    )
    app.add_middleware(Limits, local=settings.open)  # the last one added is the first to see a request
    return app


class Limits:
    """Refuses foreign hosts, requests that another site had a browser send, and large bodies; adds headers; writes the log."""

    def __init__(self, app: ASGIApp, *, local: bool) -> None:
        self._app, self._local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, taken, more = time.perf_counter(), 0, 0, True

        async def receive_some() -> Message:
            nonlocal taken, more
            try:
                async with asyncio.timeout(BODY_SECONDS if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "The request came too slowly.") from None
            taken, more = taken + len(message.get("body", b"")), bool(message.get("more_body"))
            if taken > BODY_LIMIT:
                raise HTTPException(413, TOO_LARGE)
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        try:
            refused = _refusal(Headers(scope=scope), scope["method"], local=self._local)
            await (refused(scope, receive, send_with_headers) if refused else self._app(scope, receive_some, send_with_headers))
        finally:
            # The path alone: queries and headers may hold what does not belong into a log.
            LOG.info("%s %r %d %.0f ms", scope["method"], scope["path"], status, 1000 * (time.perf_counter() - began))


def _refusal(headers: Headers, method: str, *, local: bool) -> Response | None:
    host, length = headers.get("host", ""), headers.get("content-length", "0")
    if local and re.sub(r":\d*$", "", host.lower()) not in LOCAL_NAMES:
        # Without a token, being on this machine is all there is; a page that points its own name here has no business.
        return PlainTextResponse("This server answers to localhost only; start it with a token to use another name.", 421)
    if method not in ("GET", "HEAD", "OPTIONS") and _is_cross_site(headers, host):
        return PlainTextResponse("This request comes from another site.", 403)
    if not re.fullmatch("[0-9]{1,9}", length) or int(length) > BODY_LIMIT:
        return PlainTextResponse(TOO_LARGE, 413)
    return None


def _is_cross_site(headers: Headers, host: str) -> bool:
    """Tell whether a browser says that another site's page sent this. Programs that are no browsers say nothing."""
    origin = headers.get("origin")
    try:
        foreign = origin is not None and urlsplit(origin).netloc != host
    except ValueError:
        foreign = True
    return foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def _add_handlers(app: FastAPI) -> None:
    """Answer every failure in one line: as a page for people, as JSON for programs."""

    @app.exception_handler(BaseHTTPException)
    def _http(request: Request, error: BaseHTTPException) -> Response:
        sentence = "There is no page at this address." if error.detail == "Not Found" else str(error.detail)
        return _answer(request, error.status_code, sentence, headers=error.headers)

    @app.exception_handler(CounterfoilError)
    def _ours(request: Request, error: CounterfoilError) -> Response:
        busy = isinstance(error, BadRun) and "is writing here" in str(error)
        status = 404 if isinstance(error, runs.NotHere) else 409 if busy else 422
        return _answer(request, status, request.app.state.catalogue.without_root(error))

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        sentence = "; ".join(_complaint(each) for each in error.errors())
        return _answer(request, 422, sentence.encode("utf-8", "replace").decode()[:500])

    @app.exception_handler(OperationalError)
    @app.exception_handler(InterfaceError)
    @app.exception_handler(PoolTimeout)
    def _database(request: Request, error: Exception) -> Response:
        LOG.error("database: %s", one_line(getattr(error, "orig", error)))
        return _answer(request, 503, "The database does not answer. Nothing was saved; try again in a moment.")

    @app.exception_handler(Exception)
    def _broken(request: Request, error: Exception) -> Response:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _answer(request, 500, "This is a fault of the program; its log says where.")


def _complaint(each: Any) -> str:
    """Name the problem of one value. The value is not repeated, nor are unknown names of fields: they may hold a token."""
    if each["type"] == "extra_forbidden":
        return "a field that is not known here"
    where = ".".join(str(step) for step in each["loc"][1:]) or str(each["loc"][0])
    return f"{where}: {str(each['msg']).lower()}"


def _answer(request: Request, status: int, sentence: str, headers: Any = None) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)
    try:
        visitor = access.visitor_of(request) if "session" in request.scope else Visitor()
    except Exception:  # the database may be what failed
        visitor = Visitor()
    if status == 401:
        return page(request, "enter.html", visitor, status=401, problem="")
    title = HTTPStatus(status).phrase.capitalize()
    shown = page(request, "message.html", visitor, status=status, title=title, sentence=sentence)
    shown.headers.update(headers or {})
    return shown


class PatientProtocol(H11Protocol):
    """HTTP whose requests have a limited time for their head; its size is limited by h11, to 64 KiB."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time of the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stop the time when a head is complete."""
        self._await_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._deadline is None and self.conn.their_state is h11.IDLE:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def serve(settings: ServerSettings, *, told: Callable[[ServerSettings], None], log: bool = False) -> None:
    """Serve until interrupted; `told` hears the settings once the server can be reached, with the port it got."""
    listening = _listen(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    if log:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        create_app(settings),
        http=PatientProtocol,
        log_config=None,
        access_log=False,  # ours leaves out queries and headers
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    told(settings)
    with suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(config).run(sockets=[listening])


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OverflowError:
        raise UsageError(f"port {settings.port}: a port is a number from 0 to 65535; choose another --port") from None
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise UsageError(f"{where}: cannot listen there ({error.strerror}); choose another --port") from None
