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
    help="Stress-test image classifiers with images made for the occasion. 'counterfoil demo' needs nothing else; --debug, "
    "anywhere, shows the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run", short_help="Make test images against a model and measure.")(runs.run)
app.command("score", short_help="Ask another model about a run's pictures.")(results.score)
app.command("judge", short_help="Ask another oracle about a run's pictures.")(results.judge)
app.command("report")(results.report)
app.command("compare", short_help="Say which models can be told apart.")(compare.compare)
app.command("gate", short_help="Pass or fail a run, for a pipeline.")(gate.gate)
app.command("review", short_help="Have people judge a run's pictures.")(review.review)
app.command("serve", short_help="Serve a folder of runs to browsers.")(serve.serve)
app.command("export", short_help="Write the accepted pictures of a run as a data set.")(export.export)
app.command("list")(listing.list_parts)
app.command("doctor", short_help="Look a set-up over before it is run.")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("bench", short_help="Time a few images and predict the time of a run.")(bench.bench)
app.add_typer(board.app, name="board", short_help="Make a leaderboard.")
app.command("log", short_help="Send results to an experiment tracker.")(log.log)
app.add_typer(lance.app, name="lance")

study = typer.Typer(help="Experiments on the instrument itself, and published figures to hold against.", no_args_is_help=True)
study.command("paper", short_help="Print a table of the FMR paper, with runs beside the published rows.")(paper.paper)
studies.register(study)
app.add_typer(study, name="study", short_help="Experiments on the instrument itself.")


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
    """Options that come before any command."""
