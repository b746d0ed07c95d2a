"""`counterfoil log`: a run's results in an experiment tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.output import echo
from counterfoil.store import open_run


def log(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    to: Annotated[str, typer.Option(help="tensorboard, mlflow or wandb")],
    where: Annotated[
        str | None,
        typer.Option(help="Folder (TensorBoard), tracking address (MLflow) or project (Weights & Biases)."),
    ] = None,
) -> None:
    """Send results to an experiment tracker.

    \b
    counterfoil log runs/fmr-resnet50 --to tensorboard
    """
    from counterfoil.report.trackers import log as send

    for path in runs:
        echo(f"{path}: logged to {send(open_run(path), to, where)}")
