"""The parts of an ImageNet-D run, found by name, checked against each other, and on the device only while they work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from counterfoil.core.spec import ImagenetDSpec, PartSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Oracle, Painter
from counterfoil.protocols import independence, provenance
from counterfoil.protocols.assembly import Given, device_of
from counterfoil.protocols.class_reader import Reading, reading
from counterfoil.protocols.imagenet_d.grids import Grid, read_grid
from counterfoil.protocols.imagenet_d.questions import check_question
from counterfoil.protocols.imagenet_d.sets import SetData, open_set
from counterfoil.protocols.workbench import Workbench

SET_CLASSES = "set"
"""What a zero-shot model's option `classes` says to be given the names of the set."""
TEMPLATE = "A photo of a {class}"  # of the paper


@dataclass(frozen=True)
class Bench(Workbench):
    """Everything an ImageNet-D run works with."""

    TILES: ClassVar[dict[str, int]] = {"cpu": 8, "cuda": 64}

    spec: ImagenetDSpec
    classes: Mapping[str, tuple[str, ...]]  # of the set, with the ids each stands for
    device: torch.device
    grid: Grid | None
    painter: Painter | None
    data: SetData | None
    oracle: Oracle | None
    readers: tuple[tuple[PartSpec, Reading], ...]  # surrogates, then models
    chats: tuple[tuple[PartSpec, Any], ...]
    encoder: Any = None
    caution: str | None = None

    @property
    def names(self) -> list[str]:
        """Of the set's classes."""
        return list(self.classes)

    def account(self) -> dict[str, Any]:
        """Of the parts, for `run.json`."""
        parts: dict[str, Any] = {named.name: each.model for named, each in self.readers}
        parts |= {named.name: chat for named, chat in self.chats}
        others = {"painter": self.painter, "oracle": self.oracle, "encoder": self.encoder}
        parts |= {role: part for role, part in others.items() if part is not None}
        caution = {"caution": self.caution} if self.caution else {}
        size = self.spec.size or 0
        ids: dict[str, Any] = {"class_ids": {name: list(each) for name, each in self.classes.items()}}
        if self.data is not None and self.data.known is not None:
            ids["set_surrogates"] = list(self.data.known.surrogates)  # who must not be judged by the set
        return {**caution, **ids, **provenance.describe(parts, self.spec, size=size, device=str(self.device))}

    def provenance(self, account: Mapping[str, Any]) -> dict[str, Any]:
        """For `run.json`."""
        return {**account, **(provenance.of_data(self.data.dataset) if self.data else {})}


def assemble(spec: ImagenetDSpec, given: Given | None = None) -> Bench:
    """Find and build the parts that `spec` names, and see that they fit together."""
    device = device_of(spec.device)
    objects: Mapping[str, Any] = given.parts if given else {}

    def part(role: str, named: PartSpec) -> Any:
        """By name, or handed over under its name or its role."""
        return objects.get(named.name) or objects.get(role) or registry.create(role, named.name, named.options)

    check_question(spec.questions.text)
    grid, data = None, None
    if spec.data is not None:
        data = open_set(spec.data, objects.get("dataset"))
        classes = data.classes
    else:
        grid = _limited(read_grid(spec.grid), spec.limit)
        classes = {thing.name: thing.ids for thing in grid.things}
    readers = []
    for named in (*spec.surrogates, *spec.models):
        model = objects.get(named.name) or registry.create("model", named.name, _options(named, list(classes)))
        readers.append((named, reading(named.name, model, classes)))
    oracle = part("oracle", spec.oracle).bind(list(classes)) if spec.oracle else None
    cautions = [independence.check(each.model, oracle, force=spec.force) for _, each in readers] if oracle is not None else []
    return Bench(
        spec=spec,
        classes=classes,
        device=device,
        grid=grid,
        painter=part("painter", spec.painter) if spec.painter else None,
        data=data,
        oracle=oracle,
        readers=tuple(readers),
        chats=tuple((named, part("chat", named)) for named in spec.chats),
        encoder=part("encoder", spec.encoder) if spec.encoder else None,
        caution="; ".join(dict.fromkeys(filter(None, cautions))) or None,
    )


def _options(named: PartSpec, names: list[str]) -> dict[str, Any]:
    """`classes: set` gives a zero-shot model the names of the set, with the paper's prompt."""
    if named.options.get("classes") != SET_CLASSES:
        return named.options
    return {"templates": TEMPLATE, **named.options, "classes": names}


def _limited(grid: Grid, limit: int | None) -> Grid:
    if limit is None:
        return grid
    sampling = "balanced" if grid.sampling == "full" else grid.sampling
    return replace(grid, count=min(limit, len(grid)), sampling=sampling)
