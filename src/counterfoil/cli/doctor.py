"""`counterfoil doctor`: look a set-up over before it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from counterfoil import protocols
from counterfoil.cli.options import read, resolve
from counterfoil.cli.output import echo, output
from counterfoil.core import spec as specs
from counterfoil.core.errors import UsageError

if TYPE_CHECKING:
    from counterfoil.doctor import Diagnosis

Text = str | None
Number = int | None


def doctor(
    file: Annotated[Path | None, typer.Argument(help="A specification in YAML; options below override it.")] = None,
    model: Annotated[Text, typer.Option(help="The classifier under test.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images.")] = None,
    generator: Annotated[Text, typer.Option(help="What makes the pictures.")] = None,
    oracle: Annotated[Text, typer.Option(help="What says whether the class is still there.")] = None,
    size: Annotated[Number, typer.Option(help="Side of the pictures in pixels.")] = None,
    limit: Annotated[Number, typer.Option(help="Images of the run, for the predicted time.")] = None,
    seed: Annotated[Number, typer.Option(help="Seed of the run.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1 …")] = None,
    images: Annotated[int, typer.Option(help="Pictures to examine.", min=1)] = 96,
    settings: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE for any key, as for run.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Also write what was found to this file.")] = None,
) -> None:
    """Check a set-up for common mistakes before a run.

    Looks at labels, accuracy, gradients, reconstruction and cost. Exit code 1 if it suspects a mistake.

    \b
    counterfoil doctor --model timm:resnet50 --data photos/ \\
        --generator autoencoder:vqgan/ --oracle clip:my-clip/
    """
    write = output(out, "--json")
    values = read(file)
    given = {
        "model": model, "data": data, "generator": generator, "oracle": oracle,
        "size": size, "limit": limit, "seed": seed, "device": device,
    }  # fmt: skip
    values.update({key: value for key, value in given.items() if value is not None})
    for assignment in settings or []:
        protocols.override(values, assignment)
    resolved, execution = resolve(values)
    if not isinstance(resolved, specs.FmrSpec):
        raise UsageError(
            f"doctor: looks over set-ups of the protocol fmr, got {resolved.protocol}; name a generator and an oracle"
        )

    from counterfoil.doctor import examine
    from counterfoil.protocols.assembly import assemble

    console = Console(stderr=True)
    with execution.computing():
        if console.is_terminal:
            with console.status("loading") as status:
                found = examine(assemble(resolved), images=images, watch=lambda doing: status.update(doing))
        else:
            found = examine(assemble(resolved), images=images)
    for line in lines(found):
        echo(line)
    write((json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n").encode())
    if not found.healthy:
        raise typer.Exit(1)


def lines(found: Diagnosis) -> list[str]:
    """The diagnosis for people."""
    text = []
    width = max((len(name) for section in found.sections for name in section.rows), default=0)
    for section in found.sections:
        text += [section.title, *[f"  {name:<{width}}  {value}" for name, value in section.rows.items()], ""]
    for finding in found.findings:
        mark = "SUSPECTED" if finding.severity == "mistake" else "note"
        text += [f"{mark}: {finding.mistake}: {finding.says}", f"  evidence: {finding.evidence}", f"  try: {finding.remedy}", ""]
    text.append("No mistake found." if found.healthy else "The set-up is probably wrong; see what is suspected above.")
    return text
