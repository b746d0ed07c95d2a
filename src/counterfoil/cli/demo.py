"""`counterfoil demo`: a whole run on small classifiers, offline, within minutes. Installed packages bring the demos."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError


def demo(
    protocol: Annotated[str, typer.Option(help="A protocol that has a demo, or all.")] = protocols.USUAL,
    images: Annotated[
        int | None,
        typer.Option(help="Images per protocol: tested, edited or painted; by default as many as take minutes.", min=1),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("counterfoil-demo"),
) -> None:
    """Test small classifiers on the lab: no network, no GPU.

    \b
    counterfoil demo
    counterfoil demo --protocol all --images 24
    """
    demos = {entry.name: entry for entry in entry_points(group="counterfoil.demos")}
    if not demos:
        raise UsageError("demo: the lab is not installed; run: pip install 'counterfoil[lab]'")
    if protocol not in (*demos, "all"):
        raise UsageError(f"no demo for protocol {protocol!r}; there are {', '.join(demos)} and all")
    for name in demos if protocol == "all" else (protocol,):
        if protocol == "all":
            echo(f"\n{name}\n{'=' * len(name)}")
        demos[name].load().run(images, out)
