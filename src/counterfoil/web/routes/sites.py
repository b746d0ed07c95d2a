"""Reports, comparisons and the board: static pages, made on demand and then served as files."""

from __future__ import annotations

import mimetypes
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from counterfoil.core.errors import BadRun, CounterfoilError
from counterfoil.store import Run, open_run
from counterfoil.web.catalogue import inside
from counterfoil.web.pages import page
from counterfoil.web.rendered import Make, key_of
from counterfoil.web.security.visitors import Visitor
from counterfoil.web.server import Here, Owner, Server

router = APIRouter(include_in_schema=False)

MOST = 12  # runs side by side
_SHOWN = {".html", ".css", ".js", ".png", ".jpg", ".svg", ".json"}


@router.get("/reports/{name:path}")
def report(request: Request, name: str, here: Here, visitor: Owner) -> Response:
    """The report on one run."""
    return _report(request, here, visitor, [name])


@router.get("/compare")
def compare(request: Request, here: Here, visitor: Owner, run: Annotated[list[str] | None, Query()] = None) -> Response:
    """The report on several runs side by side."""
    names = list(dict.fromkeys(run or ()))
    if not 2 <= len(names) <= MOST:
        raise HTTPException(422, f"Choose 2 to {MOST} runs to compare; {len(names)} were chosen.")
    return _report(request, here, visitor, names)


@router.get("/board")
def board(request: Request, here: Here, visitor: Owner) -> Response:
    """The leaderboard over all finished runs of the folder."""
    folders = [folder for folder in map(here.catalogue.folder, here.catalogue.names()) if _is_finished(folder)]
    if not folders:
        raise HTTPException(404, "The board has no rows yet: no run of this folder is finished.")

    def make(out: Path) -> None:
        from counterfoil.protocols.reading import write_board

        write_board(_distinct(folders), out)

    return _site(request, here, visitor, key_of("board", folders), make, what="board")


@router.get("/sites/{key}/{file:path}")
def site_file(key: str, file: str, here: Here, _: Owner) -> Response:
    """A file of a report or board that was made."""
    folder = inside(here.sites.folder, key)
    path = inside(folder, file) if folder is not None and folder.is_dir() else None
    if path is None or not path.is_file():
        raise HTTPException(404, "There is no such page; it may have been made anew under another address.")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    shown = path.suffix in _SHOWN and "downloads" not in path.relative_to(here.sites.folder).parts
    headers = {"cache-control": "private, max-age=3600"}
    return FileResponse(path, media_type=kind, headers=headers, filename=None if shown else path.name)


def _report(request: Request, here: Server, visitor: Visitor, names: list[str]) -> Response:
    folders = [here.catalogue.folder(name) for name in names]
    for folder in folders:
        Run(folder)  # says at once what is wrong with it

    def make(out: Path) -> None:
        from counterfoil.protocols.reading import write_report

        write_report([open_run(folder) for folder in folders], out)

    return _site(request, here, visitor, key_of("report", folders), make, what="report")


def _site(request: Request, here: Server, visitor: Visitor, key: str, make: Make, *, what: str) -> Response:
    if here.sites.ready(key, make):
        return RedirectResponse(f"/sites/{key}/index.html", status_code=303)
    response = page(request, "waiting.html", visitor, what=what)
    response.headers["refresh"] = "1"  # comes back by itself, without a script
    return response


def _distinct(folders: list[Path]) -> list[Path]:
    """The runs that can be on a board, each result once: a folder may hold copies, which a board refuses."""
    from counterfoil.report.board import entries_of

    chosen: dict[str, Path] = {}
    for folder in folders:
        with suppress(CounterfoilError):
            for entry in entries_of(open_run(folder)):
                chosen.setdefault(entry.identity, folder)
    if not chosen:
        raise CounterfoilError("none of the finished runs has a result that a board can show")
    return list(dict.fromkeys(chosen.values()))


def _is_finished(folder: Path) -> bool:
    try:
        return Run(folder).results is not None
    except BadRun:
        return False
