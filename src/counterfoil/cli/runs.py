"""`counterfoil run`: make test images against a model and measure what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from counterfoil import spec as specs
from counterfoil.naming import default_folder

Text = str | None
Number = int | None


def run(
    file: Annotated[Path | None, typer.Argument(help="A specification in YAML; options below override it.")] = None,
    protocol: Annotated[Text, typer.Option(help="fmr")] = None,
    model: Annotated[Text, typer.Option(help="The classifier under test, as in timm:resnet50.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images: a folder with one sub-folder a class, or kind:rest.")] = None,
    generator: Annotated[Text, typer.Option(help="What makes the pictures, as in autoencoder:PATH.")] = None,
    oracle: Annotated[Text, typer.Option(help="What says whether the class is still there, as in clip:PATH.")] = None,
    size: Annotated[Number, typer.Option(help="Side of the pictures in pixels.")] = None,
    limit: Annotated[Number, typer.Option(help="Images at most, taken evenly over the classes.")] = None,
    seed: Annotated[Number, typer.Option(help="Seed of the run.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1 …")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default one under runs/ named by the specification.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE for any key, as in --set budget=10.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first unreadable picture.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved specification and its cost, then stop.")] = False,
) -> None:
    """Make test images against a model and measure how much accuracy it keeps. The same command goes on after an interruption."""
    values: dict[str, Any] = specs.read(file) if file else {}
    given = {
        "protocol": protocol, "model": model, "data": data, "generator": generator, "oracle": oracle,
        "size": size, "limit": limit, "seed": seed, "device": device, "strict": strict or None,
    }  # fmt: skip
    values.update({key: value for key, value in given.items() if value is not None})
    for assignment in settings or []:
        specs.override(values, assignment)
    resolved = specs.parse(values)
    out = out or default_folder(resolved)
    if dry_run:
        return _explain(resolved, out)

    from counterfoil.cli.progress import watching
    from counterfoil.cli.results import show
    from counterfoil.protocols import fmr

    with watching(resolved.model.name) as (watch, tell):
        finished = fmr.run(resolved, out, watch=watch, tell=tell)
    show(finished)
    typer.echo(f"\n{out}  (counterfoil report {out} makes a page of it)")


def _explain(resolved: specs.RunSpec, out: Path) -> None:
    from counterfoil.assembly import open_data
    from counterfoil.cost import cost

    typer.echo(yaml.safe_dump({**resolved.model_dump(mode="json"), "out": str(out)}, sort_keys=False).rstrip())
    typer.echo("")
    for line in cost(resolved, len(open_data(resolved))).lines():
        typer.echo(line)
