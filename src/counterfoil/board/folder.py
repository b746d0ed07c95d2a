"""Writes the board: its folder, a file a result, the reports of runs that were given, and the page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from counterfoil.board.entry import Entry, schema
from counterfoil.board.page import render
from counterfoil.board.runs import entries_of
from counterfoil.board.submission import read_entry
from counterfoil.board.tables import tables
from counterfoil.errors import UsageError
from counterfoil.report import write_report
from counterfoil.report.page import program_version
from counterfoil.store import Run, open_run
from counterfoil.store.canonical import canonical

MARKER = "board.json"
_OWN = ("results", "reports")  # folders that are written anew
_SHARED = ("colours.css", "report.css", "charts.css", "tables.js")  # what the board looks and works like is the report's


def write_board(
    sources: Sequence[Path], out: Path, *, scored: bool = False, pictures: int = 60, title: str = "Leaderboard"
) -> Path:
    """Write a board of runs and result files into the folder `out` and return its page.

    Runs get a report each, with up to `pictures` images; 0 leaves reports out. A folder that holds an earlier board is written
    over; one that holds anything else is refused.
    """
    if not sources:
        raise UsageError("a board needs at least one result; give run directories or result files")
    runs: list[tuple[Run, list[Entry]]] = []
    entries: list[Entry] = []
    for source in sources:
        if source.is_file():
            entries.append(read_entry(source))
            continue
        run = open_run(source)
        runs.append((run, entries_of(run, scored=scored)))
        entries += runs[-1][1]
    found = tables(entries, _addresses(runs) if pictures else {})  # refuses results given twice before anything is written
    try:
        _clear(out)
        for entry in entries:
            (out / "results" / f"{entry.identity}.json").write_bytes(canonical(entry.model_dump(mode="json")))
        (out / "schema.json").write_bytes(canonical(schema()))
        for name in _SHARED:
            (out / name).write_bytes(resources.files("counterfoil.report").joinpath("static", name).read_bytes())
        (out / "board.css").write_bytes(resources.files("counterfoil.board").joinpath("static", "board.css").read_bytes())
        for run, its in runs if pictures else ():
            write_report([run], out / "reports" / its[0].identity, pictures=pictures)
        (out / "index.html").write_bytes(render(found, title=title).encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(f"{out}: the board cannot be written ({error.strerror or error}); choose another folder") from error
    return out / "index.html"


def _addresses(runs: Sequence[tuple[Run, list[Entry]]]) -> dict[str, str]:
    """Where each result's report will be; all results of a run have the run's."""
    return {entry.identity: f"reports/{its[0].identity}/index.html" for _, its in runs for entry in its}


def _clear(out: Path) -> None:
    """Make the folder ready: new, empty, or with an earlier board taken out of it."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, and a board needs a folder; choose another")
    if out.is_dir() and any(out.iterdir()) and not _is_board(out):
        raise UsageError(f"{out}: not empty and not a board; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").unlink(missing_ok=True)
    for name in _OWN:
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "results").mkdir()
    (out / MARKER).write_text(json.dumps({"board": "counterfoil", "version": program_version()}) + "\n", encoding="utf-8")


def _is_board(out: Path) -> bool:
    try:
        content = json.loads((out / MARKER).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("board") == "counterfoil"
