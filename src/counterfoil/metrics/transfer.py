"""The transfer matrix: pictures made against one model, scored on the others.

A cell is about the pictures that the row's run made and its oracle accepted. Its FMR is the column's accuracy on them over
its accuracy on all source images, as published; `FMR_matched` takes both over the accepted images. A model is hurt by the
generator alone to some degree, so every cell also has the accuracy on the plain reconstructions of the same images, and
`harm`, by how much the search lowered accuracy below that. Differences from the diagonal are paired by source image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.records import Estimate
from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.comparison import shared_keys
from counterfoil.metrics.estimate import Difference, Share, Statistic, estimate
from counterfoil.metrics.fmr import STATISTICS, columns_of
from counterfoil.metrics.outcomes import Outcomes, model_names, part_name, read_outcomes
from counterfoil.metrics.verdicts import interval_text
from counterfoil.store import Run

_NONE = "no accepted image that the model was scored on"

_HARM = Difference(Share("both_before_right", "both", _NONE), Share("both_made_right", "both", _NONE))

MEANINGS = {
    "FMR": "accuracy on the pictures, as a share of accuracy on all source images",
    "FMR_matched": "the same over the images whose picture the oracle accepts",
    "harm": "points of accuracy that the search took, beyond what the plain reconstruction takes",
    "spared": "points by which a model is harmed less than the one the pictures were made against",
}
"""What each number of a cell says, in a sentence."""


@dataclass(frozen=True)
class Cell:
    """One model on the pictures made against one model."""

    made_against: str
    model: str
    values: Mapping[str, Estimate]  # SA, PA, FMR, FMR_matched, PA_reconstruction, harm; spared where the two differ

    @property
    def own(self) -> bool:
        """Whether the pictures were made against this very model."""
        return self.made_against == self.model


@dataclass(frozen=True)
class Transfer:
    """All cells. Rows are the models that pictures were made against, columns those that were scored on them."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    def cell(self, made_against: str, model: str) -> Cell | None:
        """One cell; None if that model was not scored on those pictures."""
        return next((each for each in self.cells if (each.made_against, each.model) == (made_against, model)), None)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON and for the heat map."""
        cells = [
            {
                "made_against": each.made_against,
                "model": each.model,
                **{name: found.to_dict() for name, found in each.values.items()},
            }
            for each in self.cells
        ]
        return {"rows": list(self.rows), "columns": list(self.columns), "cells": cells}


def transfer(scored: Mapping[str, Mapping[str, Outcomes]], *, seed: int = 0) -> Transfer:
    """The matrix from `{made against: {model: outcomes}}`; a row without its own model has no `spared`."""
    columns = dict.fromkeys([*scored, *(model for row in scored.values() for model in row)])
    cells = [
        Cell(against, model, _values(row[model], row.get(against) if model != against else None, seed=seed))
        for against, row in scored.items()
        for model in columns
        if model in row
    ]
    return Transfer(tuple(scored), tuple(columns), tuple(cells))


def transfer_of(runs: Sequence[Run], *, names: Sequence[str] = (), seed: int = 0) -> Transfer:
    """The matrix of runs whose pictures other models were scored on, by `counterfoil score`.

    Runs against the same model go by `names`, one a run, or by a number.
    """
    rows: dict[str, dict[str, Outcomes]] = {}
    models = [part_name(run.spec.get("model")) for run in runs]
    for run, against, own in zip(runs, models, names or models, strict=True):
        name, again = own if models.count(against) > 1 else against, 2
        while name in rows:
            name, again = f"{against} ({again})", again + 1
        rows[name] = {(name if model == against else model): read_outcomes(run, model=model) for model in model_names(run)}
    return transfer(rows, seed=seed)


def lines(matrix: Transfer, measure: str = "FMR") -> Iterator[str]:
    """The matrix as text: a row a model that pictures were made against."""
    head = ["made against", *matrix.columns]
    body = [[row, *(_cell(matrix.cell(row, column), measure) for column in matrix.columns)] for row in matrix.rows]
    widths = [max(len(line[place]) for line in (head, *body)) for place in range(len(head))]
    for line in (head, *body):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()


def _values(outcomes: Outcomes, own: Outcomes | None, *, seed: int) -> dict[str, Estimate]:
    columns = {**columns_of(outcomes), **_harmed(outcomes)}
    wanted: dict[str, Statistic] = {
        **{name: STATISTICS[name] for name in ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction")},
        "harm": _HARM,
    }
    found = estimate(columns, wanted, seed=seed)
    return {**found, "spared": _spared(outcomes, own, seed=seed)} if own is not None else found


def _spared(outcomes: Outcomes, own: Outcomes, *, seed: int) -> Estimate:
    keys = shared_keys({outcomes.model: outcomes, own.model: own})
    one, two = (each.take(np.isin(each.keys, keys)) for each in (own, outcomes))
    columns = {
        **{f"own {name}": each for name, each in _harmed(one).items()},
        **{f"other {name}": each for name, each in _harmed(two).items()},
    }
    statistic = Difference(_HARM.prefixed("own "), _HARM.prefixed("other "))
    return estimate(columns, {"spared": statistic}, seed=seed)["spared"]


def _harmed(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    before, made = outcomes.reconstruction_correct, outcomes.made_correct
    both = (outcomes.validated == YES) & (before >= NO) & (made >= NO)
    return {"both": both, "both_before_right": both & (before == YES), "both_made_right": both & (made == YES)}


def _cell(cell: Cell | None, measure: str) -> str:
    if cell is None:
        return "not scored"
    found = cell.values.get(measure)
    if found is None:
        return ""
    if found.value is None:
        return f"– ({found.note})"
    return interval_text(found) + (" own" if cell.own else "")


def pooled(scored: Mapping[str, Mapping[str, Outcomes]], *, seed: int = 0) -> dict[str, Estimate]:
    """Harm over all cells of a matrix: to the models that pictures were made against, to the others, and the difference.

    A source image stands in many cells, and is drawn with all of them.
    """
    columns: dict[str, list[NDArray[Any]]] = {}
    keys: list[NDArray[np.uint64]] = []
    for against, row in scored.items():
        for model, outcomes in row.items():
            keys.append(outcomes.keys)
            for side in ("own", "other"):
                counted = side == ("own" if model == against else "other")
                for name, column in _harmed(outcomes).items():
                    columns.setdefault(f"{side} {name}", []).append(column & counted)
    own, other = _HARM.prefixed("own "), _HARM.prefixed("other ")
    statistics: dict[str, Statistic] = {"own": own, "others": other, "spared": Difference(own, other)}
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return estimate(joined, statistics, seed=seed, clusters=np.concatenate(keys))
