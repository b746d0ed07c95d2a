"""`counterfoil list`: which parts there are."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from counterfoil.core.errors import printable
from counterfoil.parts import registry


def list_parts(
    role: Annotated[str, typer.Argument(help="models, generators, oracles, datasets …; all if left out")] = "",
) -> None:
    """List the parts that can be named.

    \b
    counterfoil list
    counterfoil list models
    """
    roles = ["dataset" if role == "data" else role.removesuffix("s")] if role else list(registry.ROLES)
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "name", "what it is"):
        table.add_column(heading, overflow="fold")  # names of models are to be read whole
    for each in roles:
        for part in registry.listed(each):
            origin = "" if part.package == "counterfoil" else f" (from {part.package})"
            table.add_row(each, f"{part.kind}:", escape(printable(part.summary + origin)))
    Console().print(table)
