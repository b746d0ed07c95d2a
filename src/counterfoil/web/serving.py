"""Starts a server and keeps it going until it is told to stop."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import uvicorn

from counterfoil.core.errors import UsageError
from counterfoil.store.runfile import NAME
from counterfoil.web.app import guarded
from counterfoil.web.security.tokens import VARIABLE, owner_token
from counterfoil.web.settings import STATE, Settings, is_loopback


def serve(settings: Settings, *, told: Callable[[Settings], None], log: bool = False) -> None:
    """Serve until interrupted; `told` hears the settings once the server can be reached, with the port it got."""
    listening = _listen(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    if log:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        guarded(settings),
        log_config=None,
        access_log=False,  # ours leaves out queries and headers
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=5,
    )
    told(settings)
    with suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(config).run(sockets=[listening])


def settings_for(folder: Path, *, host: str, port: int, database: str, token_file: Path | None) -> Settings:
    """Settings for a folder of runs, or for the folder around a single run, with a token if one is given or needed."""
    folder = folder.absolute()
    only: tuple[str, ...] = ()
    if (folder / NAME).exists():
        folder, only = folder.parent, (folder.name,)
    given = token_file is not None or bool(os.environ.get(VARIABLE))
    token = owner_token(folder / STATE, given=token_file) if given or not is_loopback(host) else ""
    return Settings(folder, only, database, token, host, port, token_given=given)


def welcome(settings: Settings) -> str:
    """Where to go. The token goes to a terminal only: what is written elsewhere may be a log."""
    if settings.open:
        return f"{settings.address}/"
    if not settings.token_given and sys.stdout.isatty():
        return f"{settings.address}/enter#{settings.token}"
    where = f"the one given by {VARIABLE} or --token-file" if settings.token_given else f"it is in {settings.state / 'token'}"
    return f"{settings.address}/enter with the owner's token: {where}"


def _listen(settings: Settings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OverflowError:
        raise UsageError(f"port {settings.port}: a port is a number from 0 to 65535; choose another --port") from None
    except OSError as error:
        raise UsageError(
            f"{settings.host}:{settings.port}: cannot listen there ({error.strerror}); choose another --port"
        ) from None
