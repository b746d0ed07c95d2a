"""Inputs of an ImageNet-D run: its parts, the grid of its prompts, or a set that was made before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.spec import PartSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Sample, provenance_of
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.protocols.imagenet_d.grid import Grid, read_grid
from counterfoil.protocols.imagenet_d.questions import check_question
from counterfoil.protocols.imagenet_d.spec import ImagenetDSpec
from counterfoil.protocols.workspace import Given, Workspace, check_samples, of_data
from counterfoil.report.export import SetFile, find_set

SET_CLASSES = "set"
"""Value of a zero-shot model's option `classes` that asks for the names of the set."""
TEMPLATE = "A photo of a {class}"  # of the paper


@dataclass
class PaintingSpace(Workspace[ImagenetDSpec]):
    """The parts of an ImageNet-D run, with the grid of its prompts or the set that models are tested on."""

    BATCHES: ClassVar[Mapping[str, int]] = {"cpu": 8, "cuda": 64}

    grid: Grid | None = None
    data: Any = None  # SetData, where there is no grid

    @classmethod
    def of(cls, spec: ImagenetDSpec, given: Given | None = None) -> PaintingSpace:
        """Build the parts for the classes of the grid, or of the set."""
        check_question(spec.questions.text)
        if spec.data is None:
            grid = _limit(read_grid(spec.grid), spec.limit)
            made = cls.open(spec, given, class_ids={each.name: each.ids for each in grid.objects}, place=False)
            made.grid = grid
            return made
        data = open_set(spec.data, given.parts.get("dataset") if given else None)
        made = cls.open(spec, given, dataset=data.dataset, class_ids=data.classes, place=False)
        made.data = data
        return made

    @classmethod
    def options(cls, named: PartSpec, names: Sequence[str]) -> Mapping[str, Any]:
        """`classes: set` gives a zero-shot model the names of the set, with the paper's prompt."""
        if named.options.get("classes") != SET_CLASSES:
            return named.options
        return {"templates": TEMPLATE, **named.options, "classes": list(names)}

    def account(self) -> dict[str, Any]:
        """Of the parts, and of the models that the set must not judge."""
        known = self.data.known if self.data is not None else None
        return {**super().account(), **({"set_surrogates": list(known.surrogates)} if known is not None else {})}

    def provenance(self, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Of the parts, and which images a set has."""
        return {**(account or self.account()), **(of_data(self.data.dataset) if self.data is not None else {})}


@dataclass(frozen=True)
class SetData:
    """Any data set; one that `export` wrote also says what its classes stand for and how its images were made."""

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

    def samples(self, limit: int | None) -> Iterator[Sample]:
        """The samples, cut evenly to a limit."""
        return iter(self.dataset if limit is None else self.dataset.limit(count=limit))

    def about(self, image_id: str) -> dict[str, Any]:
        """The set's words about an image; empty where it has none."""
        entry: Mapping[str, str] = self.known.pictures.get(image_id, {}) if self.known else {}
        return {"kind": entry.get("kind", ""), "nuisance": entry.get("nuisance", ""), "prompt": entry.get("prompt", "")}

    def load(self, sample: Sample, size: int | None) -> Tensor | BadImage:
        """The image, or why it cannot be read."""
        try:
            return self.dataset.load(sample, size)
        except BadImage as problem:
            return problem

    def settings(self) -> dict[str, Any]:
        """Fingerprint that tells this data from other data."""
        return {"data": self.name, "about": provenance_of(self.dataset)}


def open_set(named: PartSpec, built: Dataset | None = None) -> SetData:
    """The data by name, or `built`, and what a set file next to it says. Of a set, only classes with images count."""
    dataset = ImageSet.of(registry.create("dataset", named.name, named.options) if built is None else built)
    if len(dataset) == 0:
        raise BadData(f"{named.name}: no images")
    check_samples(dataset, name=named.name)
    known = known_set(named.name) if built is None else None
    held = {sample.label for sample in dataset} if known else set()
    if known and len(held) < len(dataset.classes):
        kept = {dataset.classes[label]: [label] for label in sorted(held)}
        dataset = dataset.relabel(kept, what=named.name)
    return SetData(named.name, dataset, known)


def known_set(name: str) -> SetFile | None:
    """Read the set file that lies with data of that name, if there is one."""
    home = _home(name)
    return find_set(home) if home else None


def _limit(grid: Grid, limit: int | None) -> Grid:
    if limit is None:
        return grid
    sampling = "balanced" if grid.sampling == "full" else grid.sampling
    return replace(grid, count=min(limit, len(grid)), sampling=sampling)


def _home(name: str) -> Path | None:
    """The folder in which a set file would lie, for data that `export` can have written."""
    kind, _, place = name.partition(":")
    if kind == "subset":
        return _home(place if ":" in place else f"folder:{place}")
    if kind in ("csv", "webdataset"):
        return Path(place).expanduser().parent
    return Path(place).expanduser() if kind in ("folder", "hfdata") else None
