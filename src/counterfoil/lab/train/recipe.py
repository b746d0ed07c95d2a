"""What every recipe has: a frozen dataclass of sizes and losses, and a schedule in it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar


@dataclass(frozen=True)
class Schedule:
    """How a model is optimised."""

    steps: int
    batch: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    warmup: int = 200
    averaging: float = 0.999
    """Decay of the running average of the weights; the average is what gets saved."""
    largest_gradient: float = 1.0


class Recipe(Protocol):
    """Everything that makes a model, but for the seed and the models it builds on."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def schedule(self) -> Schedule:
        """How the model is optimised."""


Kind = TypeVar("Kind", bound=Recipe)


def rescheduled(recipe: Kind, **changes: float | None) -> Kind:
    """The recipe with other values in its schedule; None leaves a value as it is."""
    given = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, **given))  # type: ignore[arg-type, type-var]
