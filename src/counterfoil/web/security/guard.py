"""What every request passes through: its host, the size of its body, the headers of its answer, a line in the log."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterfoil.web.settings import LOOPBACK_NAMES, Settings

LOG = logging.getLogger("counterfoil.web")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class TooLarge(Exception):
    """The body is larger than the server takes in."""


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        taken = 0
        limit = self._settings.body_limit

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooLarge
            return message

        async def dressed(message: Message) -> None:
            nonlocal status
            if taken > limit and status != 413:
                return  # whatever the application makes of a body that breaks off, the answer is 413
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_headers(message["headers"])
            await send(message)

        try:
            complaint = self._complaint(scope)
            if complaint is not None:
                await _refuse(dressed, *complaint)
            else:
                with suppress(TooLarge):
                    await self._app(scope, limited, dressed)
                if taken > limit and status == 0:
                    status = 413
                    await _refuse(dressed, 413, self._too_large())
        finally:
            # The path alone: queries and headers may hold what is nobody's business.
            LOG.info("%s %r %d %.0f ms", scope["method"], scope["path"], status, 1000 * (time.perf_counter() - began))

    def _complaint(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"content-length")}
        if self._settings.open and not _is_local(headers.get(b"host", b"").decode("latin-1")):
            # Without a token, being on this machine is all there is; a page that points its own name here has no business.
            return 421, "This server answers to localhost only; start it with a token to reach it by another name."
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return 400, "The length of the request makes no sense."
        return (413, self._too_large()) if int(length) > self._settings.body_limit else None

    def _too_large(self) -> str:
        return f"The request is larger than {self._settings.body_limit} bytes, the most this server takes in."


def _is_local(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower() in LOOPBACK_NAMES


def _with_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
    if b"cache-control" not in given:
        more.append((b"cache-control", b"no-store"))
    return [*headers, *more]


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = sentence.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
