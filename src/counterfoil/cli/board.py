"""`counterfoil board`: a leaderboard of runs and of results that others handed in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from counterfoil.cli.output import echo, output
from counterfoil.core.errors import UsageError

if TYPE_CHECKING:
    from counterfoil.report.board import Entry


class _BuildsByDefault(TyperGroup):
    """`counterfoil board RUN…` builds; `check` and `result` are commands of their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["build", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_BuildsByDefault,
    help="Build a leaderboard from runs and results.\n\nResults of others are checked and put beside your own.\n\n"
    "\b\ncounterfoil board runs/fmr-* -o site",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("build")
def build(
    sources: Annotated[list[Path], typer.Argument(metavar="RUN|RESULT.json...", help="Run directories and result files.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the site.")],
    scored: Annotated[
        bool, typer.Option("--scored", help="Rank all models scored on each run's pictures, as on a fixed set.")
    ] = False,
    pictures: Annotated[int, typer.Option(help="Images in each run's report; 0 for no reports.", min=0)] = 60,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Leaderboard",
) -> None:
    """Write the board as a static site that opens from disk."""
    from counterfoil.protocols.reading import write_board

    echo(write_board(sources, out, scored=scored, pictures=pictures, title=title))


@app.command("result")
def result(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write.")],
    model: Annotated[str | None, typer.Option(help="Which model, where a run tests several.")] = None,
    submitter: Annotated[str, typer.Option(help="Who hands it in.")] = "",
    comment: Annotated[str, typer.Option(help="A line for readers of the board.")] = "",
    report: Annotated[str, typer.Option(help="https:// address of the run's report, if it is on the web.")] = "",
) -> None:
    """Write a run's result as the one JSON file that a board takes."""
    from pydantic import ValidationError

    from counterfoil.report.board import Entry, entries_of
    from counterfoil.store import open_run
    from counterfoil.store.files import canonical

    write = output(out, "--out")
    entry = _one(run, entries_of(open_run(run)), model)
    told = {"submitter": submitter, "comment": comment, "report": report}
    try:
        entry = Entry.model_validate({**entry.model_dump(mode="json"), **told})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--{first['loc'][0]}: {first['msg'].lower()}, got {str(first['input'])[:60]!r}") from None
    write(canonical(entry.model_dump(mode="json")))
    echo(out)


def _one(run: Path, entries: list[Entry], model: str | None) -> Entry:
    names = [entry.model.name for entry in entries]
    wanted = [entry for entry in entries if model in (None, entry.model.name)]
    if len(wanted) != 1:
        said = "tests several models; choose one by --model" if model is None else f"has no result of {model!r}; give --model as"
        raise UsageError(f"{run}: {said}: {', '.join(names)}")
    return wanted[0]


@app.command("check", short_help="Say whether results fit the schema and their numbers follow from their answers.")
def check(files: Annotated[list[Path], typer.Argument(metavar="RESULT.json...", help="Result files.")]) -> None:
    """Say whether results fit the schema, and whether their numbers follow from their answers."""
    from counterfoil.core.records import Estimate
    from counterfoil.metrics.tables import estimate_text
    from counterfoil.report.board import read_entry

    problems = 0
    for path in files:
        try:
            entry = read_entry(path)
        except UsageError as error:
            problems += 1
            echo(f"counterfoil: {error}", err=True)
        else:
            fmr = estimate_text(Estimate.from_dict(entry.numbers["FMR"].model_dump()))
            echo(f"{path}: fits; {entry.model.name}, {len(entry.answers.images)} images, FMR {fmr}")
    if problems:
        raise typer.Exit(1)
