"""Writes the board: its folder, a file a result, the reports of runs that were given, and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from counterfoil.core.errors import UsageError
from counterfoil.report.board.entry import Entry, schema
from counterfoil.report.board.page import render
from counterfoil.report.board.runs import entries_of
from counterfoil.report.board.submission import read_entry
from counterfoil.report.board.tables import tables
from counterfoil.report.folder import copy_static, take_over, writing
from counterfoil.store import Run, open_run
from counterfoil.store.files import canonical

_OWN = ("results", "reports")  # folders that are written anew
_SHARED = ("colours.css", "report.css", "charts.css", "tables.js")  # what the board looks and works like is the report's


def write_board(
    sources: Sequence[Path],
    out: Path,
    *,
    report: Callable[..., Path],
    scored: bool = False,
    pictures: int = 60,
    title: str = "Leaderboard",
) -> Path:
    """Write a board of runs and result files into the folder `out` and return its page.

    Runs get a report each, which `report` writes, with up to `pictures` images; 0 leaves reports out. A folder that holds an
    earlier board is written over; one that holds anything else is refused.
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
    with writing(out, "board"):
        take_over(out, "board", folders=_OWN)
        (out / "results").mkdir()
        for entry in entries:
            (out / "results" / f"{entry.identity}.json").write_bytes(canonical(entry.model_dump(mode="json")))
        (out / "schema.json").write_bytes(canonical(schema()))
        copy_static(out, _SHARED)
        (out / "board.css").write_bytes(resources.files("counterfoil.report.board").joinpath("static", "board.css").read_bytes())
        for run, its in runs if pictures else ():
            report([run], out / "reports" / its[0].identity, pictures=pictures)
        (out / "index.html").write_bytes(render(found, title=title).encode("utf-8", "replace"))
    return out / "index.html"


def _addresses(runs: Sequence[tuple[Run, list[Entry]]]) -> dict[str, str]:
    """Where each result's report will be; all results of a run have the run's."""
    return {entry.identity: f"reports/{its[0].identity}/index.html" for _, its in runs for entry in its}
