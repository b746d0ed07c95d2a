"""`counterfoil demo`: the whole way on the embedded lab, offline, within minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from counterfoil import spec as specs
from counterfoil.errors import UsageError

MODELS = ("lab:narrow", "lab:augmented", "lab:diverse")
ROWS = ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction", "PA_random", "VR", "steps")


def demo(
    protocol: Annotated[str, typer.Option(help="fmr, lance or imagenet-d.")] = "fmr",
    images: Annotated[
        int | None, typer.Option(help="Images: a model, edited or painted; default 72, 40 for lance, 216 for imagenet-d.", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("counterfoil-demo"),
) -> None:
    """Test three small classifiers on the embedded lab and write a report. Needs no network and no GPU."""
    if protocol == "imagenet-d":
        from counterfoil.cli import demo_imagenet_d

        return demo_imagenet_d.demo(images or demo_imagenet_d.IMAGES, out)
    if protocol == "lance":
        from counterfoil.cli import demo_lance

        return demo_lance.demo(images or demo_lance.IMAGES, out)
    if protocol != "fmr":
        raise UsageError(f"no demo for protocol {protocol!r}; there are fmr, lance and imagenet-d")
    images = images or 72

    from counterfoil.cli.progress import watching
    from counterfoil.protocols import fmr
    from counterfoil.report import write_report

    typer.echo("Three classifiers that look alike on a fixed test set. New pictures are made against each of them;")
    typer.echo("the lab's CLIP decides which still show the garment. How much accuracy is left?\n")
    runs = []
    for model in MODELS:
        spec = specs.parse(
            {"model": model, "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip", "limit": images}
        )
        with watching(f"{model:<14}") as (watch, tell):
            runs.append(fmr.run(spec, out / model.replace(":", "-"), watch=watch, tell=tell))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for model in MODELS:
        table.add_column(model, justify="right")
    for name in ROWS:
        table.add_row(name, *[_cell((run.results or {})[name]) for run in runs])
    Console().print(table)
    typer.echo(
        "\nIn per cent, with 95 % intervals; steps are steps. FMR = PA / SA is the share of accuracy kept, FMR_matched the"
    )
    typer.echo("same on the accepted images alone. PA_reconstruction and PA_random are controls: what the generator by itself,")
    typer.echo("and steps of equal length in random directions, leave of it.")
    typer.echo(f"\nReport: {write_report(runs, out / 'report').resolve()}")


def _cell(estimate: dict[str, float | None]) -> str:
    if estimate["value"] is None:
        return "–"
    return f"{estimate['value']:.0f} ({estimate['low']:.0f} to {estimate['high']:.0f})"
