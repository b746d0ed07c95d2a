"""Labelled sets as input of a run: any data, and what a set that `export` wrote says of its classes and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.protocols.static import StaticSpec
from counterfoil.protocols.workspace import Given, S, Workspace, open_data
from counterfoil.report.export import SetFile, find_set


@dataclass(frozen=True)
class LabelledSet:
    """Any data set; one that `export` wrote also says what its classes stand for and how its images were made."""

    dataset: ImageSet
    known: SetFile | None = None

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The classes with the ids each stands for."""
        if self.dataset.class_ids and not self.known:
            return {name: tuple(ids) for name, ids in self.dataset.class_ids.items()}
        ids = self.known.class_ids if self.known else {}
        found = {}
        for place, name in enumerate(self.dataset.classes):
            others = self.dataset.aliases[place] if self.dataset.aliases else ()
            found[name] = tuple(next((ids[each] for each in (name, *others) if ids.get(each)), (name,)))
        return found

    def about(self, sample: Sample) -> dict[str, str]:
        """The set's words about an image; empty where it has none."""
        entry: Mapping[str, str] = self.known.pictures.get(sample.image_id, {}) if self.known else {}
        own = {"kind": sample.factor, "nuisance": sample.value, "prompt": ""}
        return {name: entry.get(name, value) for name, value in own.items()}


def open_set(spec: Any, given: Given | None = None) -> LabelledSet:
    """Open a run's data, cut to its limit. Of a set, only classes with images count.

    Where another process has listed the data, only its set file is read again.
    """
    home = None if given and "dataset" in given.parts else _home(spec.data.name)
    known = find_set(home) if home else None
    if given and given.head is not None:
        return LabelledSet(open_data(spec, given), known)
    dataset = open_data(spec.model_copy(update={"limit": None}), given)
    held = {sample.label for sample in dataset} if known else set()
    if known and len(held) < len(dataset.classes):
        dataset = dataset.relabel({dataset.classes[label]: [label] for label in sorted(held)}, what=spec.data.name)
    return LabelledSet(dataset if spec.limit is None else dataset.limit(count=spec.limit), known)


def _home(name: str) -> Path | None:
    """The folder in which a set file would lie, for data that `export` can have written."""
    kind, _, place = name.partition(":")
    if kind == "subset":
        return _home(place if ":" in place else f"folder:{place}")
    if kind in ("csv", "webdataset"):
        return Path(place).expanduser().parent
    return Path(place).expanduser() if kind in ("folder", "hfdata") else None


@dataclass
class SetSpace(Workspace[S]):
    """Parts of a run over a labelled set."""

    data: LabelledSet | None = None

    def account(self) -> dict[str, Any]:
        known = self.data.known if self.data is not None else None
        return {**super().account(), **({"set_surrogates": list(known.surrogates)} if known is not None else {})}


@dataclass
class StaticSpace(SetSpace[StaticSpec]):
    """Parts of a static run: a model and a labelled set, whose images are brought to one size."""

    @classmethod
    def of(cls, spec: StaticSpec, given: Given | None = None) -> StaticSpace:
        data = open_set(spec, given)
        made = cls.open(spec, given, dataset=data.dataset, class_ids=data.classes if data.known else data.dataset.class_ids)
        made.data = data
        return made

    @property
    def _sized(self) -> bool:
        return True
