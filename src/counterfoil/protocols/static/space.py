"""Parts of a static run: a model and a labelled set, whose classes may each stand for several of the model's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from counterfoil.protocols.imagenet_d.sets import SetData, known_set, open_set
from counterfoil.protocols.static import StaticSpec
from counterfoil.protocols.workspace import Given, Workspace, open_data


def open_data_set(spec: StaticSpec, given: Given | None = None) -> SetData:
    """Open the run's set, cut to its limit; where another process has listed it, only its set file is read again."""
    if given and given.head is not None:
        return SetData(spec.data.name, open_data(spec, given), known_set(spec.data.name))
    data = open_set(spec.data, given.parts.get("dataset") if given else None)
    return data if spec.limit is None else replace(data, dataset=data.dataset.limit(count=spec.limit))


@dataclass
class StaticSpace(Workspace[StaticSpec]):
    """The parts of a static run, and the models whose mistakes chose the images of its set."""

    surrogates: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: StaticSpec, given: Given | None = None) -> StaticSpace:
        """Build the parts for the classes of the set."""
        data = open_data_set(spec, given)
        known = data.known
        made = cls.open(spec, given, dataset=data.dataset, class_ids=data.classes if known else None)
        made.surrogates = tuple(known.surrogates) if known else ()
        return made

    @property
    def _sized(self) -> bool:
        """Images are brought to one size, also those of a set that says what its classes stand for."""
        return True

    def account(self) -> dict[str, Any]:
        """Of the parts, and of the models that the set must not judge."""
        return {**super().account(), **({"set_surrogates": list(self.surrogates)} if self.surrogates else {})}
