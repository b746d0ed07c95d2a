"""`counterfoil demo`: the whole way on the embedded lab, offline, within minutes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError

DEMOS = {
    "fmr": "counterfoil.cli.demo_fmr",
    "lance": "counterfoil.cli.demo_lance",
    "imagenet-d": "counterfoil.cli.demo_imagenet_d",
}
"""A module for each protocol, with `IMAGES`, how many it takes by default, and `demo(images, out)`."""


def demo(
    protocol: Annotated[str, typer.Option(help=f"{', '.join(DEMOS)} or all.")] = "fmr",
    images: Annotated[
        int | None, typer.Option(help="Images a protocol: tested, edited or painted; by default what takes minutes.", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("counterfoil-demo"),
) -> None:
    """Test small classifiers on the lab: no network, no GPU.

    \b
    counterfoil demo
    counterfoil demo --protocol all --images 24
    """
    if protocol not in (*DEMOS, "all"):
        raise UsageError(f"no demo for protocol {protocol!r}; there are {', '.join(DEMOS)} and all")
    for name in DEMOS if protocol == "all" else (protocol,):
        if protocol == "all":
            echo(f"\n{name}\n{'=' * len(name)}")
        module = import_module(DEMOS[name])
        module.demo(images or module.IMAGES, out)


def cell(estimate: Mapping[str, Any]) -> str:
    """A number of the results in a demo's table: `83 (70 to 92)`."""
    if estimate["value"] is None:
        return "–"
    interval = "no interval" if estimate["low"] is None else f"{estimate['low']:.0f} to {estimate['high']:.0f}"
    return f"{estimate['value']:.0f} ({interval})".replace("-", "−")
