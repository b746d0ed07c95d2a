"""Whether painted scenes show what their prompt asked for, by the lab's attribute checker: an audit, no part of any result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from counterfoil import images
from counterfoil.lab.parts import WEIGHTS
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.vocabulary import FACTORS
from counterfoil.models.timm_models import timm_model
from counterfoil.records import Trial
from counterfoil.store import Run

BATCH = 32


@dataclass(frozen=True)
class Faithful:
    """For one kind of nuisance: how often the garment, the nuisance and both are as asked for."""

    kind: str
    garment: Reading
    nuisance: Reading
    both: Reading


def faithfulness(run: Run, trials: Iterable[Trial]) -> list[Faithful]:
    """The checker's word on these painted pictures of a run over the lab's grid."""
    checker = timm_model(str(WEIGHTS / "attributes"))
    outputs = {name: index for index, name in enumerate(checker.classes)}
    rows = iter([trial for trial in trials if trial.image and trial.factor in FACTORS])
    right: dict[str, list[tuple[bool, bool]]] = {}
    while some := list(islice(rows, BATCH)):
        with torch.no_grad():
            scores = checker.logits(torch.stack([images.read(run.picture(trial)) for trial in some]))
        for row, trial in zip(scores, some, strict=True):
            found = (_seen(row, outputs, "garment") == run.classes[trial.label], _seen(row, outputs, trial.factor) == trial.value)
            right.setdefault(trial.factor, []).append(found)
    return [_reading(kind, torch.tensor(found)) for kind, found in sorted(right.items())]


def _seen(row: Tensor, outputs: dict[str, int], factor: str) -> str:
    """The value of a factor that the checker sees."""
    values = FACTORS[factor]
    return values[int(row[[outputs[f"{factor}: {value}"] for value in values]].argmax())]


def _reading(kind: str, right: Tensor) -> Faithful:
    whole = right.all(dim=1)
    return Faithful(kind, share("object", right[:, 0]), share(kind, right[:, 1]), share("both", whole))
