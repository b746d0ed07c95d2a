"""What the oracle and the tested models say of the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.errors import RunFailed
from counterfoil.protocols.lance.bench import Bench, Tested
from counterfoil.protocols.lance.edits import image_of
from counterfoil.protocols.workbench import picture
from counterfoil.records import Picture
from counterfoil.stages import Blobs, Item, Items, Made, Stages, Table, turned_away


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
        truth = [item.inputs["label"] for item in some]

        def ask(batch: Tensor, start: int) -> list[tuple[int, float, int]]:
            asked = truth[start : start + len(batch)]
            asked = asked + asked[-1:] * (len(batch) - len(asked))
            said = bench.oracle.judge(batch, torch.tensor(asked, device=batch.device))
            return list(zip(said.keeps_label.tolist(), said.scores.tolist(), said.predicted.tolist(), strict=True))

        answers = bench.in_tiles([picture(stages, item.about["name"]) for item in some], ask)
        return [_verdict(item, *answer, bench=bench) for item, answer in zip(some, answers, strict=True)]

    settings = bench.settings(bench.spec.oracle, bench.oracle, classes=list(bench.dataset.classes))
    with bench.placed(bench.oracle):
        return stages.map("oracle", shown.items(), work, settings=settings)


def _verdict(item: Item, keeps: int, score: float, seen: int, *, bench: Bench) -> Made:
    values: dict[str, Any] = {
        "keeps_label": None if keeps < 0 else bool(keeps),
        "score": _finite(score, bench.spec.oracle.name),
        "predicted": seen,
    }
    if item.about["kind"] != "made" or keeps == 1:
        return Made(values)
    if keeps < 0:
        return turned_away("undecided", "the oracle has not decided yet", **values)
    sees = bench.dataset.classes[seen] if 0 <= seen < len(bench.dataset.classes) else "another class"
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


def _asking(bench: Bench, stages: Stages, tested: Tested) -> Any:
    def work(some: Sequence[Item]) -> list[Made]:
        @torch.no_grad()
        def ask(batch: Tensor, start: int) -> list[Tensor]:
            return list(tested.model.logits(batch).float().softmax(1).cpu())  # (tile, K)

        rows = bench.in_tiles([picture(stages, item.about["name"]) for item in some], ask)
        return [_prediction(row, tested, item.inputs["label"]) for row, item in zip(rows, some, strict=True)]

    return work


def _prediction(row: Tensor, tested: Tested, label: int) -> Made:
    top, truth = int(row.argmax()), tested.columns[label]
    inside = top in tested.columns
    return Made(
        {
            "predicted": tested.columns.index(top) if inside else -1,
            "said": "" if inside else str(tested.model.classes[top]),
            "correct": top == truth,
            "confidence": _finite(float(row[top]), tested.name),
            "truth": float(row[truth]),
            "rank": 1 + int((row > row[truth]).sum()),
        }
    )


def _finite(value: float, name: str) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise RunFailed(f"{name} answers with {value}; its weights or its input range are wrong")
    return value
