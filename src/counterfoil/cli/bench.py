"""`counterfoil bench`: what this machine will do, and how long a run would take on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil import protocols
from counterfoil.cli.options import read, resolve
from counterfoil.cli.output import echo, output
from counterfoil.core.errors import UsageError

if TYPE_CHECKING:
    from counterfoil.doctor.benchmark import Measured

Text = str | None
Number = int | None

PROTOCOLS = ("fmr", "lance", "imagenet-d")
OF_THE_LAB = 50_000  # as many as ImageNet has for validation; the lab itself has as many as one likes


def bench(
    file: Annotated[Path | None, typer.Argument(help="A specification in YAML; by default the lab, all three protocols.")] = None,
    protocol: Annotated[Text, typer.Option(help="fmr, lance or imagenet-d, of the lab.")] = None,
    model: Annotated[Text, typer.Option(help="The classifier under test, instead of the file's or the lab's.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images.")] = None,
    generator: Annotated[Text, typer.Option(help="For fmr: what makes the pictures.")] = None,
    oracle: Annotated[Text, typer.Option(help="What says whether the class is still there.")] = None,
    size: Annotated[Number, typer.Option(help="Side of the pictures in pixels.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1 …")] = None,
    images: Annotated[
        Number, typer.Option(help="Images to time; by default some, on a GPU three times its slots.", min=1)
    ] = None,
    predict: Annotated[
        Number,
        typer.Option(help="Images of the run whose time is predicted; by default those of the data, of the lab 50,000.", min=1),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE for any key, as for run.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Also write what was measured to this file.")] = None,
) -> None:
    """Time a few images and predict the time of a run.

    \b
    counterfoil bench settings.yaml --predict 50000
    """
    write = output(out, "--json")
    roles = {"model": model, "data": data, "generator": generator, "oracle": oracle}
    given = {key: value for key, value in {**roles, "size": size, "device": device}.items() if value is not None}
    names = [protocol] if protocol else ["fmr"] if given.keys() & roles.keys() else PROTOCOLS
    resolved = []
    for values in [_values(file, protocol)] if file else [lab(name) for name in names]:
        values.update(given)
        for assignment in settings or []:
            protocols.override(values, assignment)
        resolved.append(resolve(values))

    from counterfoil.doctor.benchmark import measured

    found = []
    for spec, execution in resolved:
        with execution.computing():
            found.append(measured(spec, images))
        if execution.executor != "local":
            echo(f"{spec.protocol}: timed in this process alone, not by the workers of {execution.executor}")
        for line in lines(found[-1], predict or (protocols.get(spec.protocol).images(spec) if file or data else OF_THE_LAB)):
            echo(line)
    write((json.dumps([asdict(each) for each in found], indent=2) + "\n").encode())


def lab(protocol: str) -> dict[str, Any]:
    """Return the values of the run that a protocol's demo does."""
    demos = entry_points(group="counterfoil.demos", name=protocol)
    if not demos:
        raise UsageError(
            f"bench: no demo of protocol {protocol!r} to time; name a specification, or pip install 'counterfoil[lab]'"
        )
    values: dict[str, Any] = next(iter(demos)).load().values()
    return values


def lines(found: Measured, predict: int) -> list[str]:
    """What was measured, for people."""
    from counterfoil.doctor.speed import duration

    said = f"{found.protocol}: {1 / found.seconds:.3g} images a second ({found.images} timed); "
    text = [f"{said}{predict:,} images take {duration(found.predicted(predict))}"]
    if found.images < found.slots:
        text.append(f"  fewer than its {found.slots} slots, so some were idle: a longer run takes less for an image")
    if found.protocol == "fmr":
        text.append("  not counted: reading and storing pictures, and warming up")
    width = max(len(share.name) for share in found.shares)
    text += [f"  {share.name:<{width}}  {share.times:6.1f} an image  {share.seconds * 1e3:9.1f} ms" for share in found.shares]
    return [*text, ""]


def _values(file: Path, protocol: str | None) -> dict[str, Any]:
    """What a specification's file says, which is of the protocol asked for, if one is."""
    values = read(file)
    own = values.get("protocol", "fmr")
    if protocol not in (None, own):
        raise UsageError(f"--protocol {protocol}: {file} is a specification of {own}; leave one of the two out")
    return values
