"""`counterfoil board`: a leaderboard of runs and of results that others submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil.cli.options import Results, prints_results
from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError


@prints_results
def board(
    results: Results,
    sources: Annotated[list[Path], typer.Argument(metavar="RUN|RESULT.json...", help="Run directories and result files.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the site.")] = None,
    scored: Annotated[
        bool, typer.Option("--scored", help="Rank all models scored on each run's images, as on a fixed set.")
    ] = False,
    pictures: Annotated[int, typer.Option(help="Images in each run's report; 0 for no reports.", min=0)] = 60,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Leaderboard",
    check: Annotated[
        bool, typer.Option("--check", help="Only check result files: their schema, and that numbers follow from answers.")
    ] = False,
) -> None:
    """Build a leaderboard from runs and results.

    Results of others are checked and listed next to your own; 'export --format result' writes one.

    \b
    counterfoil board runs/fmr-* -o site
    counterfoil board --check submitted.json
    """
    if check:
        return _check(sources, results)
    if out is None:
        raise UsageError("board: give the folder for the site by -o, or --check to check result files only")
    from counterfoil.protocols.reading import write_board

    page = write_board(sources, out, scored=scored, pictures=pictures, title=title)
    results.text(page)
    results.data({"page": str(page)})


def _check(files: list[Path], results: Results) -> None:
    from counterfoil.metrics.tables import estimate_text
    from counterfoil.report.result_file import read

    checked: list[dict[str, Any]] = []
    for path in files:
        try:
            entry = read(path)
        except UsageError as error:
            echo(f"counterfoil: {error}", err=True)
            checked.append({"file": str(path), "fits": False, "problem": str(error)})
        else:
            first = entry.ranked[0]
            found = entry.measures[first].found.estimate
            results.text(f"{path}: fits; {entry.model.name}, {len(entry.keys)} {entry.row}s, {first} {estimate_text(found)}")
            told = {"model": entry.model.name, "rows": len(entry.keys), "measure": first, "estimate": found.to_dict()}
            checked.append({"file": str(path), "fits": True, **told})
    results.data(checked)
    if not all(each["fits"] for each in checked):
        raise typer.Exit(1)
