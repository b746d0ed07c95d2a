"""Nested mappings, such as specifications, as flat ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping itself, by its dotted name, as in `search.step`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
