"""Commands over runs that are there: ask another model or oracle about the pictures, and make a page of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.output import echo
from counterfoil.core.progress import counting
from counterfoil.core.spec import part
from counterfoil.protocols.reading import results_of, write_report
from counterfoil.store import Run, open_run

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")]
One = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE for any option of the part.")]

As = Annotated[str | None, typer.Option("--as", help="What its answers are kept under; by default its name.")]


def score(
    run: One,
    model: Annotated[str, typer.Option(help="The model to ask, as in timm:resnet50.")],
    settings: Settings = None,
    name: As = None,
    device: Device = "cpu",
) -> None:
    """Ask another model about a run's images.

    \b
    counterfoil score runs/fmr-resnet50 --model timm:convnext_base
    """
    from counterfoil.protocols import rescoring

    stored = open_run(run)
    with counting(model, rescoring.pictures_of(stored)) as watch:
        rescoring.score(stored, part(model, settings), name=name, device=device, watch=watch, tell=_tell)
    show(stored, model=name or model)


def judge(
    run: One,
    oracle: Annotated[str, typer.Option(help="The oracle to ask, as in clip:PATH.")],
    settings: Settings = None,
    name: As = None,
    device: Device = "cpu",
) -> None:
    """Ask another oracle about a run's images.

    The numbers are computed again with its verdicts.

    \b
    counterfoil judge runs/fmr-resnet50 --oracle clip:other-clip/
    """
    from counterfoil.protocols import rescoring

    stored = open_run(run)
    with counting(oracle, rescoring.pictures_of(stored)) as watch:
        rescoring.judge(stored, part(oracle, settings), name=name, device=device, watch=watch, tell=_tell)
    show(stored, oracle=name or oracle)


def report(
    runs: Runs,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the page; by default report/ in the first run.")
    ] = None,
    pictures: Annotated[int, typer.Option(help="Images a run that the gallery shows.", min=0)] = 1000,
) -> None:
    """Write a page of one run, or of several side by side.

    It opens from disk.

    \b
    counterfoil report runs/fmr-resnet50
    counterfoil report runs/fmr-* -o page
    """
    page = write_report([open_run(path) for path in runs], out or runs[0] / "report", pictures=pictures)
    echo(page)


def _tell(line: str) -> None:
    echo(f"counterfoil: {line}", err=True)


def show(run: Run, *, model: str | None = None, oracle: str | None = None) -> None:
    """Print a run's numbers with their intervals, and what to know before believing them."""
    results = results_of(run, model=model, oracle=oracle)
    protocol, counts = protocols.of(run), results["counts"]
    skipped = f", {counts['skipped']} unreadable and skipped" if counts["skipped"] else ""
    asked = results["oracle"]["name"]
    names = results["model"]["name"] + (f", oracle {asked}" if asked != "none" else "")
    echo(f"{names}: {protocol.extent(counts)}{skipped}")
    echo(protocol.text(results))
    for at, caution in enumerate(protocol.cautions(run, results, model=model)):
        gap = "" if at else "\n"
        echo(f"{gap}{'take care' if caution.kind == 'care' else 'note'}: {caution.text}")
