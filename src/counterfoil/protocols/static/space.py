"""What a static run works with: a model and a labelled set, whose classes may each stand for several of the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterfoil.protocols.imagenet_d.sets import open_set
from counterfoil.protocols.static import StaticSpec
from counterfoil.protocols.workspace import Given, Workspace


@dataclass
class StaticSpace(Workspace[StaticSpec]):
    """The parts of a static run, and the models whose mistakes chose the images of its set."""

    surrogates: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: StaticSpec, given: Given | None = None) -> StaticSpace:
        """Build the parts for the classes of the set."""
        data = open_set(spec.data, given.parts.get("dataset") if given else None)
        known = data.known
        dataset = data.dataset if spec.limit is None else data.dataset.limited(count=spec.limit)
        made = cls.open(spec, given, dataset=dataset, class_ids=data.classes if known else None)
        made.surrogates = tuple(known.surrogates) if known else ()
        return made

    @property
    def _sized(self) -> bool:
        """Images are brought to one size, also those of a set that says what its classes stand for."""
        return True

    def account(self) -> dict[str, Any]:
        """Of the parts, and of the models that the set must not judge."""
        return {**super().account(), **({"set_surrogates": list(self.surrogates)} if self.surrogates else {})}
