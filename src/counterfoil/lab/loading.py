"""Every model of the lab as a run gets it: by name, through the registry. `python -m counterfoil.lab.loading NAME` says how long
that takes in an interpreter that has loaded nothing else, apart from importing the libraries."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from counterfoil.lab import checker, editor, measure, parts
from counterfoil.parts import registry
from counterfoil.parts.language import lab

PARTS: Mapping[str, tuple[str, str]] = {
    # name: role, and what it is called in that role
    **{name: ("model", f"lab:{name}") for name in parts.CLASSIFIERS},
    **{name: ("generator", f"lab:{name}") for name in parts.GENERATORS},
    "clip": ("oracle", "lab:clip"),
    "diffusion": ("painter", "lab:diffusion"),
    "blip": ("captioner", "lab:blip"),
    "rewriter": ("rewriter", "lab:rewriter"),
}
IMPORTED = (checker, editor, measure, lab)
"""With these come the libraries' classes that loading would import first."""


def load(name: str) -> Any:
    """A part of the lab, or the attribute checker, which is none."""
    return checker.Checker() if name == "attributes" else registry.create(*PARTS[name])


if __name__ == "__main__":
    began = time.perf_counter()
    load(sys.argv[1])
    print(time.perf_counter() - began)
