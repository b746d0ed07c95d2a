"""The commands, put together. Each lives in a file of its own and imports what it needs when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from counterfoil.cli import (
    bench,
    board,
    compare,
    demo,
    doctor,
    export,
    gate,
    lance,
    listing,
    log,
    paper,
    results,
    review,
    runs,
    serve,
)
from counterfoil.cli import study as studies

app = typer.Typer(
    name="counterfoil",
    help="Stress-test image classifiers with images made for the occasion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(runs.run)
app.command("score")(results.score)
app.command("judge")(results.judge)
app.command("report")(results.report)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.command("review")(review.review)
app.command("serve")(serve.serve)
app.command("export")(export.export)
app.command("list")(listing.list_parts)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.add_typer(board.app, name="board")
app.command("log")(log.log)
app.add_typer(lance.app, name="lance")

study = typer.Typer(help="Experiments on the instrument itself, and published figures to hold against.", no_args_is_help=True)
study.command("paper")(paper.paper)
studies.register(study)
app.add_typer(study, name="study")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("counterfoil"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Stress-test image classifiers with images made for the occasion. --debug shows tracebacks."""
