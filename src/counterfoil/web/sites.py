"""Reports, comparisons and the board: static pages, written on request, kept while the runs stay as they are."""

from __future__ import annotations

import hashlib
import logging
import mimetypes
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

import counterfoil
from counterfoil.core.errors import CounterfoilError
from counterfoil.protocols.reading import Run, open_run, result_files, write_board, write_report
from counterfoil.report.page import program_version
from counterfoil.store import runfile
from counterfoil.store.chunks import CONTENTS, RESULTS, numbers
from counterfoil.web.access import Owner, Visitor, page
from counterfoil.web.runs import Runs, blaming, inside

LOG = logging.getLogger("counterfoil.web")

MOST = 12  # runs next to each other
KEPT = 24  # sites on the disk; the oldest goes when there is one more
_SHOWN = {".html", ".css", ".js", ".png", ".jpg", ".svg", ".json"}  # the rest is a download

Make = Callable[[Path], object]
routes = APIRouter(include_in_schema=False)


class Sites:
    """Folders of static pages, each under a key that changes with what it shows. One is written at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing: dict[str, Future[None]] = {}
        self._turn = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sites")

    def path_or_start(self, key: str, make: Make) -> Path | None:
        """The site's folder, or None while it is being written. An error in writing it is raised to the next request."""
        place = self.folder / key
        with self._turn:
            if place.is_dir():
                return place
            if key not in self._writing:
                self._writing[key] = self._worker.submit(self._write, place, make)
                return None
            if not self._writing[key].done():
                return None
            done = self._writing.pop(key)
        done.result()
        return place if place.is_dir() else None

    def close(self) -> None:
        """Write nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _write(self, place: Path, make: Make) -> None:
        draft = place.with_name(f"{place.name}.draft")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            make(draft)
            draft.rename(place)
            there = [each for each in self.folder.iterdir() if each.is_dir() and each.suffix != ".draft"]
            for old in sorted(there, key=lambda each: each.stat().st_mtime, reverse=True)[KEPT:]:
                shutil.rmtree(old, ignore_errors=True)
        except CounterfoilError:
            raise
        except Exception as error:  # no space, no permission; or a run from elsewhere that is damaged in any way
            LOG.exception("a page could not be written")
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}; a run may be damaged"
            raise CounterfoilError(f"the page cannot be written ({reason})") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def site_key(kind: str, runs: Sequence[Path]) -> str:
    """A name for what this program shows of the runs as they are now."""
    seen = hashlib.sha256(f"{kind} {_program()}".encode())
    for run in runs:
        seen.update(f"{run} {numbers(run)}".encode("utf-8", "surrogateescape"))
        for path in (run / runfile.NAME, run / CONTENTS, run / RESULTS):
            with suppress(OSError):
                seen.update(f"{path.name} {path.stat().st_mtime_ns} {path.stat().st_size}".encode())
    return f"{kind}-{seen.hexdigest()[:24]}"


@lru_cache(maxsize=1)
def _program() -> str:
    """The program's version and the state of its files, so that an upgrade or an edit shows no old pages."""
    files = (path for path in Path(counterfoil.__file__).parent.rglob("*") if path.suffix in (".py", ".html", ".css", ".js"))
    return f"{program_version()} {max(path.stat().st_mtime_ns for path in files)}"


@routes.get("/reports/{name:path}")
def report(request: Request, name: str, runs: Runs, visitor: Owner) -> Response:
    """The report on one run."""
    return _report(request, [runs.folder(name)], visitor)


@routes.get("/compare")
def compare(request: Request, runs: Runs, visitor: Owner, run: Annotated[list[str] | None, Query()] = None) -> Response:
    """The report that compares several runs."""
    names = list(dict.fromkeys(run or ()))
    if not 2 <= len(names) <= MOST:
        raise HTTPException(422, f"Choose 2 to {MOST} runs to compare; {len(names)} were chosen.")
    return _report(request, [runs.folder(name) for name in names], visitor)


@routes.get("/board")
def board(request: Request, runs: Runs, visitor: Owner) -> Response:
    """The leaderboard over all finished runs of the folder."""
    folders = [folder for folder in map(runs.folder, runs.names()) if (folder / RESULTS).is_file()]
    if not folders:
        raise HTTPException(404, "The board has no rows yet: no run of this folder is finished.")
    return _site(request, visitor, site_key("board", folders), lambda out: write_board(_distinct(folders), out))


@routes.get("/sites/{key}/{file:path}")
def site_file(request: Request, key: str, file: str, _: Owner) -> Response:
    """A file of a report or board."""
    sites: Sites = request.app.state.sites
    folder = inside(sites.folder, key)
    path = inside(folder, file) if folder is not None and folder.is_dir() else None
    if path is None or not path.is_file():
        raise HTTPException(404, "There is no such page; it may have been written again under another address.")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    shown = path.suffix in _SHOWN and "downloads" not in path.relative_to(sites.folder).parts
    headers = {"cache-control": "private, max-age=3600"}
    return FileResponse(path, media_type=kind, headers=headers, filename=None if shown else path.name)


def _report(request: Request, folders: list[Path], visitor: Visitor) -> Response:
    for folder in folders:
        with blaming(folder.name):
            Run(folder)  # says at once what is wrong with it
    key = site_key("report", folders)
    return _site(request, visitor, key, lambda out: write_report([open_run(folder) for folder in folders], out))


def _site(request: Request, visitor: Visitor, key: str, make: Make) -> Response:
    sites: Sites = request.app.state.sites
    if sites.path_or_start(key, make) is not None:
        return RedirectResponse(f"/sites/{key}/index.html", status_code=303)
    kind = key.partition("-")[0]
    sentence = "Its pages are being written. This page leads there by itself when they are ready."
    response = page(request, "message.html", visitor, title=f"Writing the {kind}", sentence=sentence, busy=True)
    response.headers["refresh"] = "1"  # comes back by itself, without a script
    return response


def _distinct(folders: list[Path]) -> list[Path]:
    """The runs that can be on a board, each result once: a folder may hold copies, which a board refuses."""
    chosen: dict[str, Path] = {}
    for folder in folders:
        with suppress(CounterfoilError), blaming(folder.name):
            for entry in result_files(open_run(folder)):
                chosen.setdefault(entry.identity, folder)
    if not chosen:
        raise CounterfoilError("none of the finished runs has a result that a board can show")
    return list(dict.fromkeys(chosen.values()))
