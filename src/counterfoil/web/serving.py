"""Start and stop a server, and the review that a command line works with."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from sqlalchemy import select
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterfoil.core.errors import UsageError
from counterfoil.protocols.reading import Run, open_run
from counterfoil.store.runfile import NAME
from counterfoil.web.access import STATE, VARIABLE, ServerSettings, is_loopback, owner_token
from counterfoil.web.app import create_app
from counterfoil.web.database import Database, Review
from counterfoil.web.review import ReviewPlan, create_review

HEAD_SECONDS = 15.0  # from a connection or the first byte of a request to the end of its head
CONNECTIONS = 1000


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


def settings_for(
    folder: Path, *, host: str, port: int, database: str, token_file: Path | None, https: bool = False
) -> ServerSettings:
    """Settings for a folder of runs, or for the folder around a single run, with a token if one is given or needed."""
    folder = folder.absolute()
    only: tuple[str, ...] = ()
    with suppress(OSError):  # such as a name that is too long; the settings say so
        if (folder / NAME).exists():
            folder, only = folder.parent, (folder.name,)
    given = token_file is not None or bool(os.environ.get(VARIABLE))
    token = owner_token(folder / STATE, given=token_file) if given or not is_loopback(host) else ""
    return ServerSettings(folder, only, database, token, host, port, https=https, token_given=given)


def welcome(settings: ServerSettings) -> str:
    """The address to open. The token goes to a terminal only: what is written elsewhere may be a log."""
    if settings.open:
        return f"{settings.address}/"
    if not settings.token_given and sys.stdout.isatty():
        return f"{settings.address}/enter#{settings.token}"
    where = f"the one given by {VARIABLE} or --token-file" if settings.token_given else f"it is in {settings.state / 'token'}"
    return f"{settings.address}/enter with the owner's token: {where}"


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OverflowError:
        raise UsageError(f"port {settings.port}: a port is a number from 0 to 65535; choose another --port") from None
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise UsageError(f"{where}: cannot listen there ({error.strerror}); choose another --port") from None


@dataclass
class ReviewSession:
    """The review of one run for a command line: the newest one, or a new one."""

    run: Run
    database: Database
    review: Review
    is_new: bool

    @classmethod
    def of(cls, settings: ServerSettings, plan: ReviewPlan, *, new: bool = False) -> ReviewSession:
        """The review of the one run that the settings name."""
        (name,) = settings.only
        run, database = open_run(settings.root / name), Database(settings.database_url)
        with database.writing() as db:
            newest = select(Review).where(Review.run == name).order_by(Review.id.desc()).limit(1)
            found = None if new else db.scalar(newest)
            return cls(run, database, found or create_review(db, run, name=name, plan=plan), found is None)
