"""`counterfoil check`: from a checkpoint and a folder of photos to a number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import Results, Text, prints_results


@prints_results
def check(
    results: Results,
    model: Annotated[str, typer.Argument(help="A checkpoint, a folder, or a name such as timm:resnet50.a1_in1k.")],
    photos: Annotated[Path, typer.Argument(help="A folder with one sub-folder of images per class.")],
    arch: Annotated[Text, typer.Option(help="Architecture of a state dictionary, as in timm:resnet18, if none is found.")] = None,
    classes: Annotated[
        Text, typer.Option(help="File with the names of the outputs, one per line; by default the folders.")
    ] = None,
    expect: Annotated[float | None, typer.Option(help="Accuracy that you know the model to have, in per cent.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Test as many photos as this time allows.", min=0.1)] = None,
    preset: Annotated[Path | None, typer.Option(help="YAML file with the generators and oracles to try.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default one under runs/ named by the model.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda …; by default a GPU if there is one.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Fetch what is needed and begin without asking.")] = False,
) -> None:
    """Test your own model on your own photos; everything else is chosen.

    Checks clean accuracy first, then tries oracles and generators on the photos, says what it chose and how long a run takes,
    and ends with a verdict and a report. Interrupt it any time; the same command resumes the run.

    \b
    counterfoil check model.pth photos/
    counterfoil check timm:resnet50.a1_in1k photos/ --expect 80 --minutes 30 --yes
    """
    from counterfoil.cli.results import show
    from counterfoil.doctor.check import check as do

    def ask(question: str) -> bool:
        return yes or typer.confirm(question, default=True)

    done = do(
        model, photos, arch=arch, classes=classes, expect=expect, preset=preset, minutes=minutes, out=out, device=device,
        ask=ask, tell=results.text,
    )  # fmt: skip
    results.data(done.to_dict())
    if done.run is None:
        return
    results.text("", *done.verdict, "")
    show(done.run, results)
    results.text(f"\n{done.page}")
