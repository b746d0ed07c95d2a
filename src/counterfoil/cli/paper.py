"""`counterfoil study paper`: a published table with our runs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError
from counterfoil.store import open_run
from counterfoil.studies import papers
from counterfoil.studies.papers import beside, ours

Runs = list[str] | None


def paper(
    runs: Annotated[
        Runs,
        typer.Argument(metavar="[RUN...]", help="Run directories; MODEL=RUN puts one beside the published row of that model."),
    ] = None,
    table: Annotated[int, typer.Option(help="Number of the table.")] = 1,
) -> None:
    """Print a table of the FMR paper, with runs beside the published rows and what differs in their set-up."""
    source = papers.load("fmr")
    published = source.table(table)
    if runs and published.kind == "facts":
        raise UsageError(f"Table {table} ({published.title.lower()}) is not made of a run's numbers; leave the runs out")
    found = []
    for text in runs or []:
        meant, _, path = ("", "", text) if Path(text).exists() else text.rpartition("=")
        found += [(meant, row) for row in ours.rows(open_run(path), published)]
    for line in list(beside.lines(source, published, found)):  # all of it or, for a wrong row, none
        echo(line)
