"""What the oracle and the tested models say of the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.core.records import Picture
from counterfoil.protocols.class_reader import Reading
from counterfoil.protocols.lance.bench import Bench, Tested
from counterfoil.protocols.lance.edits import image_of
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Blobs, Item, Items, Made, Stages, Table, turned_away
from counterfoil.store.stages.mapping import Work


@dataclass(frozen=True)
class View:
    """A picture that is shown to the oracle and the models."""

    id: str
    image_id: str
    kind: Picture
    name: str  # of the blob
    label: int


@dataclass(frozen=True)
class Shown:
    """Every readable source picture, the reconstruction of those that were edited, and every edit that passed."""

    sources: Table
    edited: Table
    quality: Table

    def __iter__(self) -> Iterator[View]:
        labels = {}
        for row in self.sources.kept():
            labels[row.id] = row["label"]
            yield View(f"{row.id}#clean", row.id, "clean", row["picture"], row["label"])
        last = None
        for row in self.edited.kept():
            image_id = image_of(row.id)
            if image_id != last:
                last = image_id
                yield View(f"{image_id}#reconstruction", image_id, "reconstruction", row["reconstruction"], labels[image_id])
        for row in self.quality.kept():
            image_id = image_of(row.id)
            yield View(row.id, image_id, "made", row["image"], labels[image_id])

    def items(self) -> Items:
        """The views as items of a stage."""

        def again() -> Iterator[Item]:
            for view in self:
                inputs = {"picture": Blobs.hash_of(view.name), "label": view.label}
                yield Item(view.id, inputs, {"kind": view.kind, "name": view.name})

        return Items(again)


def judge(bench: Bench, stages: Stages, shown: Shown) -> Table:
    """The oracle on every picture; an edited picture that has lost its class is turned away."""

    def work(some: Sequence[Item]) -> list[Made]:
        pictures = [picture(stages, item.about["name"]) for item in some]
        answers = bench.judged(bench.spec.oracle, bench.oracle, pictures, [item.inputs["label"] for item in some])
        return [_verdict(item, *answer, classes=bench.dataset.classes) for item, answer in zip(some, answers, strict=True)]

    settings = bench.settings(bench.spec.oracle, bench.oracle, classes=list(bench.dataset.classes))
    with bench.placed(bench.oracle):
        return stages.map("oracle", shown.items(), work, settings=settings)


def _verdict(item: Item, keeps: bool | None, score: float, seen: int, *, classes: Sequence[str]) -> Made:
    values: dict[str, Any] = {"keeps_label": keeps, "score": score, "predicted": seen}
    if item.about["kind"] != "made" or keeps:
        return Made(values)
    if keeps is None:
        return turned_away("undecided", "the oracle has not decided yet", **values)
    sees = classes[seen] if 0 <= seen < len(classes) else "another class"
    return turned_away("class lost", f"the oracle sees {sees}", **values)


def predict(bench: Bench, stages: Stages, shown: Shown) -> list[Table]:
    """A table a model, of what it says of every picture."""
    tables = []
    for at, tested in enumerate(bench.tested):
        settings = bench.settings(tested.spec, tested.model, columns=tested.columns)
        with bench.placed(tested.model):
            # The last one's stage has the plain name, so that stopping after `predictions` means after all of them.
            name = "predictions" if at == len(bench.tested) - 1 else f"predictions-{at + 1}"
            tables.append(stages.map(name, shown.items(), _asking(bench, stages, tested), settings=settings))
    return tables


def _asking(bench: Bench, stages: Stages, tested: Tested) -> Work:
    reader = Reading(tested.name, tested.model, tuple((column,) for column in tested.columns))

    def work(some: Sequence[Item]) -> list[Made]:
        pictures = [picture(stages, item.about["name"]) for item in some]
        return [Made(look) for look in bench.in_tiles(pictures, reader.looks, [item.inputs["label"] for item in some])]

    return work
