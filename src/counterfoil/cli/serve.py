"""`counterfoil serve`: runs under a folder, reports, the board and reviews, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.output import echo
from counterfoil.core.errors import require

Host = Annotated[str, typer.Option(help="Address to listen on. Any but a loopback one demands a token.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")]
Address = Annotated[str, typer.Option("--database", help="Where votes are kept: postgresql://… or sqlite:///FILE.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the owner's token; COUNTERFOIL_TOKEN does as well.")]
Https = Annotated[bool, typer.Option("--https", help="Behind a proxy that adds TLS: cookies are sent over https only.")]
Log = Annotated[bool, typer.Option("--log", help="Write a line about every request to standard error.")]


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of runs, or a run directory.")] = Path("runs"),
    host: Host = "127.0.0.1",
    port: Port = 8765,
    database: Address = "",
    token_file: TokenFile = None,
    https: Https = False,
    log: Log = False,
) -> None:
    """Serve a folder of runs to browsers.

    Browse, compare, report, board, review, and watch runs in progress.

    \b
    counterfoil serve runs
    """
    require("fastapi", what="counterfoil serve")
    from counterfoil.web import app
    from counterfoil.web.access import ServerSettings

    settings = ServerSettings.of(folder, host=host, port=port, database=database, token_file=token_file, https=https)
    app.serve(settings, told=lambda started: echo(started.welcome()), log=log)
