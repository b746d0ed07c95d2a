"""A recipe for each source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from counterfoil.parts.registry import ROLES
from tests.sources import data, endpoints, generators, language, models, own, painting

Made = tuple[str, dict[str, Any]]
"""The name of a part and its options, as a specification gives them."""
Recipe = Callable[[Path, ExitStack], Made]
"""Writes what a part is made of into a folder; what has to stay open for it, such as a server, goes onto the stack."""

OWN = ("counterfoil.", "counterfoil_lab.", "counterfoil_brightness:")  # not what else is installed

RECIPES: dict[tuple[str, str], Recipe] = {
    **models.RECIPES,
    **generators.RECIPES,
    **data.RECIPES,
    **language.RECIPES,
    **painting.RECIPES,
    **endpoints.RECIPES,
    **own.RECIPES,
}
"""By role and kind."""


def list_sources() -> list[tuple[str, str]]:
    """Role and kind of every source that is registered, without importing any."""
    found = {(role, entry.name) for role in ROLES for entry in entry_points(group=f"counterfoil.{role}s") if _own(entry.value)}
    found |= {(role, "python") for role in ROLES}
    return sorted(found, key=lambda source: (ROLES.index(source[0]), source[1]))


def _own(value: str) -> bool:
    return value.startswith(OWN)
