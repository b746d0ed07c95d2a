"""A classifier's answers, where a class of the set may stand for several of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.core.records import Picture, Prediction
from counterfoil.core.spec import Precision
from counterfoil.parts import calls, labels
from counterfoil.parts.contracts import Dataset, Model
from counterfoil.parts.fast.dtypes import computing

_KEPT = ("predicted", "correct", "confidence", "truth", "rank")  # of a look, as a prediction has it


@dataclass(frozen=True)
class Reading:
    """Read a model's outputs in the classes of a set: a hit on any output of the right class is right."""

    name: str
    model: Model
    outputs: tuple[tuple[int, ...], ...]  # for each class of the set
    precision: Precision = "float32"  # that the model computes in

    @torch.no_grad()
    def looks(self, images: Tensor, truths: Sequence[int]) -> list[dict[str, Any]]:
        """One entry per image, as plain values.  # (N, 3, H, W); `truths` may be fewer, further rows are idle"""
        with computing(self.precision, images.device):
            logits = calls.logits_of(self.model.logits, images, len(self.model.classes), part=f"model {self.name}")
        if not torch.isfinite(logits).all():
            raise RunFailed(f"model {self.name}: its scores are not finite; check its weights and precision")
        chances = logits.softmax(dim=1).cpu()  # (N, K)
        home = {output: label for label, group in enumerate(self.outputs) for output in group}
        return [self._look(row, truth, home) for row, truth in zip(chances, truths, strict=False)]

    def _look(self, row: Tensor, truth: int, home: Mapping[int, int]) -> dict[str, Any]:
        top = int(row.argmax())
        own = self._by_class(row)  # (classes of the set,)
        best = row[list(self.outputs[truth])].max()
        others = own.clone()
        others[truth] = -1
        return {
            "predicted": home.get(top, -1),
            "said": str(self.model.classes[top]),
            "correct": home.get(top) == truth,
            "confidence": float(row[top]),
            "truth": float(own[truth]),
            "rank": 1 + int((row > best).sum()),
            "wrong": int(others.argmax()),  # the most probable of the set's wrong classes
            "wrong_chance": float(others.max()),
        }

    def _by_class(self, row: Tensor) -> Tensor:
        """The chance of each class of the set.  # (K,) → (classes,)"""
        if all(len(group) == 1 for group in self.outputs):
            return row[[group[0] for group in self.outputs]]
        return torch.stack([row[list(group)].sum() for group in self.outputs])


def prediction_of(trial_id: str, picture: Picture, model: str, look: Mapping[str, Any]) -> Prediction:
    """A look as a run keeps it."""
    said = "" if look["predicted"] >= 0 else look["said"]  # a class of the run has the name that the run gives it
    return Prediction(trial_id, picture, model, **{name: look[name] for name in _KEPT}, said=said)


def reading(
    name: str,
    model: Model,
    classes: Sequence[str],
    ids: Mapping[str, Sequence[str]] | None = None,
    *,
    wanted_aliases: labels.Aliases | None = None,
) -> Reading:
    """Reader of a model in a run's classes, each of which may stand for several `ids`."""
    what, aliases = f"model {name}", getattr(model, "aliases", None)
    if ids is None or all(list(ids[known]) == [known] for known in classes):
        columns = labels.match(classes, model.classes, what=what, aliases=aliases, wanted_aliases=wanted_aliases)
        return Reading(name, model, tuple((column,) for column in columns))
    by_name = _by_name(classes, model)
    if by_name is not None:  # a zero-shot model that was given the set's own names
        return Reading(name, model, tuple((column,) for column in by_name))
    groups = labels.resolve_groups({known: list(ids[known]) for known in classes}, model.classes, what=what, aliases=aliases)
    return Reading(name, model, tuple(tuple(groups[known]) for known in classes))


def columns_of(model: Model, dataset: Dataset, *, name: str) -> list[int]:
    """The model's output for each of a data set's classes."""
    reader = reading(name, model, dataset.classes, wanted_aliases=getattr(dataset, "aliases", None))
    return [output for (output,) in reader.outputs]


def _by_name(classes: Sequence[str], model: Model) -> list[int] | None:
    keys = {labels.key(name): at for at, name in enumerate(model.classes)}
    found = [keys.get(labels.key(name)) for name in classes]
    return None if len(model.classes) != len(classes) or None in found else [at for at in found if at is not None]
