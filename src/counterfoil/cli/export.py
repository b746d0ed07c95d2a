"""`counterfoil export`: write the accepted images of a run as a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.output import echo

Text = str | None


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, of any protocol.")],
    layout: Annotated[str, typer.Option("--format", help="folder, webdataset or datasets (Hugging Face).")] = "folder",
    out: Annotated[Path | None, typer.Option(help="Folder for the set; by default one named after run and format.")] = None,
    name: Annotated[Text, typer.Option(help="What the set is called; by default as its folder.")] = None,
    licence: Annotated[Text, typer.Option("--licence", "--license", help="Licence of the images, as in cc-by-4.0.")] = None,
    note: Annotated[str, typer.Option(help="A paragraph for the datasheet.")] = "",
    croissant: Annotated[bool, typer.Option("--croissant", help="Also write Croissant metadata, for a set in folders.")] = False,
) -> None:
    """Export a run's accepted images as a dataset.

    With a datasheet, provenance and checksums.

    \b
    counterfoil export runs/fmr-resnet50 --format webdataset
    """
    from counterfoil.core.progress import counting
    from counterfoil.report.export import export as write
    from counterfoil.store import open_run

    opened = open_run(run)
    out = out or Path(f"{run.resolve().name}-{layout}")
    with counting("export", opened.counts["accepted"]) as watch:
        told = write(opened, out, layout=layout, name=name, licence=licence, note=note, croissant=croissant, watch=watch)
    begun = "; the run is not finished: repeat its command to make more" if opened.results is None else ""
    echo(f"{out}: {told.size} images of {len(told.classes)} classes{begun}")
