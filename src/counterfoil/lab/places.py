"""Where the lab's models lie, and which names it knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from counterfoil.core.errors import UnknownName

WEIGHTS: Final = Path(__file__).parent / "weights"
"""The folder of the models that ship, one folder a model."""


def known(name: str, among: Iterable[str]) -> str:
    """The name, if the lab has a part of that name."""
    names = tuple(among)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    raise UnknownName(f"no lab part named {name!r}; {hint}")
