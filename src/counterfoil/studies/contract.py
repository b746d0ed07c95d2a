"""What a study is: a name, the parts it needs by default, and a function from a bench to findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.studies.findings import Findings

if TYPE_CHECKING:
    from counterfoil.studies.bench import Bench


@dataclass(frozen=True)
class Study:
    """One experiment. Its module defines it as `STUDY`; `counterfoil study NAME` runs it."""

    name: str
    published: str
    """Which tables of the FMR paper it corresponds to, or in what it goes beyond them."""
    run: Callable[[Bench], Findings]
    models: tuple[str, ...]
    """The lab's models it looks at when none are given, in an order that means something to the study."""
    least_models: int = 1
    images: int = 96
    """How many source images it takes by default."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of its own with their defaults, set by `--set KEY=VALUE`."""
