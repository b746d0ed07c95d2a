"""`counterfoil demo --protocol fmr`: three classifiers that test alike, told apart by pictures made against each of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from counterfoil.cli.demo import cell
from counterfoil.cli.output import echo
from counterfoil.core import spec as specs

IMAGES = 72
MODELS = ("lab:narrow", "lab:augmented", "lab:diverse")
GENERATOR = "lab:kl"
ROWS = ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction", "PA_random", "VR", "steps")


def demo(images: int, out: Path) -> None:
    """Make pictures against three classifiers and say how much accuracy each keeps."""
    from counterfoil.core.progress import watching
    from counterfoil.protocols import fmr
    from counterfoil.report import write_report

    echo("Three classifiers that look alike on a fixed test set. New pictures are made against each of them;")
    echo("the lab's CLIP decides which still show the garment. How much accuracy is left?\n")
    runs = []
    for model in MODELS:
        spec = specs.parse(
            {"model": model, "data": "lab:wardrobe", "generator": GENERATOR, "oracle": "lab:clip", "limit": images}
        )
        with watching(f"{model:<14}") as (watch, tell):
            runs.append(fmr.run(spec, out / model.replace(":", "-"), watch=watch, tell=tell))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for model in MODELS:
        table.add_column(model, justify="right")
    for name in ROWS:
        table.add_row(name, *[cell((run.results or {})[name]) for run in runs])
    Console().print(table)
    echo("\nIn per cent, with 95 % intervals; steps are steps. FMR = PA / SA is the share of accuracy kept, FMR_matched the")
    echo("same on the accepted images alone. PA_reconstruction and PA_random are controls: what the generator by itself,")
    echo("and steps of equal length in random directions, leave of it.")
    echo(f"\nReport: {write_report(runs, out / 'report').resolve()}")
