"""A set that was made before, as a run reads it: pictures, the ids of its classes, and the nuisance of each picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.spec import PartSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Sample, provenance_of
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.protocols.assembly import check_samples
from counterfoil.report.datasheet import SetFile, find_set


@dataclass(frozen=True)
class SetData:
    """Any data set; one that `export` wrote also says what its classes stand for and how its pictures were made."""

    name: str
    dataset: ImageSet
    known: SetFile | None

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The classes with the ids each stands for."""
        ids = self.known.class_ids if self.known else {}
        aliases = self.dataset.aliases
        found = {}
        for place, name in enumerate(self.dataset.classes):
            others = [alias for alias in (aliases[place] if aliases else ()) if alias in ids]
            found[name] = tuple(ids.get(name) or (ids[others[0]] if others else (name,)))
        return found

    def taken(self, limit: int | None) -> Iterator[Sample]:
        """The samples, cut evenly to a limit."""
        return iter(self.dataset if limit is None else self.dataset.limited(count=limit))

    def about(self, image_id: str) -> dict[str, Any]:
        """What the set says of a picture; empty words where it says nothing."""
        entry: Mapping[str, str] = self.known.pictures.get(image_id, {}) if self.known else {}
        return {"kind": entry.get("kind", ""), "nuisance": entry.get("nuisance", ""), "prompt": entry.get("prompt", "")}

    def load(self, sample: Sample, size: int | None) -> Tensor | BadImage:
        """The picture, or why it cannot be read."""
        try:
            return self.dataset.load(sample, size)
        except BadImage as problem:
            return problem

    def settings(self) -> dict[str, Any]:
        """What tells this data from other data."""
        return {"data": self.name, "about": provenance_of(self.dataset)}


def open_set(named: PartSpec, built: Dataset | None = None) -> SetData:
    """The data by name, or `built`, and what a set file beside it says. Of a set, only classes with images count."""
    dataset = ImageSet.of(registry.create("dataset", named.name, named.options) if built is None else built)
    if len(dataset) == 0:
        raise BadData(f"{named.name}: no images")
    check_samples(dataset, name=named.name)
    home = _home(named.name) if built is None else None
    known = find_set(home) if home else None
    held = {sample.label for sample in dataset} if known else set()
    if known and len(held) < len(dataset.classes):
        kept = {dataset.classes[label]: [label] for label in sorted(held)}
        dataset = dataset.relabelled(kept, what=named.name)
    return SetData(named.name, dataset, known)


def _home(name: str) -> Path | None:
    """The folder in which a set file would lie, for data that `export` can have written."""
    kind, _, place = name.partition(":")
    if kind == "subset":
        return _home(place if ":" in place else f"folder:{place}")
    if kind in ("csv", "webdataset"):
        return Path(place).expanduser().parent
    return Path(place).expanduser() if kind in ("folder", "hfdata") else None
