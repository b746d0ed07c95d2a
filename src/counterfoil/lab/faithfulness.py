"""Whether painted scenes show what their prompt asked for, by the lab's attribute checker: an audit, no part of any result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from counterfoil.core.records import Trial
from counterfoil.lab.checker import Checker
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.vocabulary import FACTORS
from counterfoil.parts import images
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
    checker = Checker()
    rows = iter([trial for trial in trials if trial.image and trial.factor in FACTORS])
    right: dict[str, list[tuple[bool, bool]]] = {}
    while some := list(islice(rows, BATCH)):
        read = checker.read(torch.stack([images.read(run.picture(trial)) for trial in some]))
        for row, trial in enumerate(some):
            seen = {name: FACTORS[name][int(read[name][row])] for name in ("garment", trial.factor)}
            found = (seen["garment"] == run.classes[trial.label], seen[trial.factor] == trial.value)
            right.setdefault(trial.factor, []).append(found)
    return [_reading(kind, torch.tensor(found)) for kind, found in sorted(right.items())]


def _reading(kind: str, right: Tensor) -> Faithful:
    whole = right.all(dim=1)
    return Faithful(kind, share("object", right[:, 0]), share(kind, right[:, 1]), share("both", whole))
