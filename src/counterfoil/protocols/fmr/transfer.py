"""The transfer matrix: images made against one model, scored on the others.

A cell is about the images that the row's run made and its oracle accepted. Its FMR is the column's accuracy on them over
its accuracy on all source images, as published; `FMR_matched` takes both over the accepted images. A model is hurt by the
generator alone to some degree, so every cell also has the accuracy on the plain reconstructions of the same images, and
`harm`, by how much the search lowered accuracy below that. Differences from the diagonal are paired by source image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.answers import NO, YES, models_of
from counterfoil.metrics.estimate import Difference, Share, Statistic, estimate
from counterfoil.metrics.tables import Column, Table
from counterfoil.protocols.fmr.results import STATISTICS, Outcomes, columns_of, read_outcomes
from counterfoil.store import Run

_NONE = "no accepted image that the model was scored on"

HARM = Difference(Share("both_before_right", "both", _NONE), Share("both_made_right", "both", _NONE))

MEANINGS = {
    "FMR": "accuracy on the images, as a share of accuracy on all source images",
    "FMR_matched": "the same over the images whose image the oracle accepts",
    "harm": "points of accuracy that the search took, beyond what the plain reconstruction takes",
    "spared": "points by which a model is harmed less than the one the images were made against",
}
"""A sentence for each number of a cell."""


@dataclass(frozen=True)
class TransferCell:
    """One model on the images made against one model."""

    made_against: str
    model: str
    values: Mapping[str, Estimate]  # SA, PA, FMR, FMR_matched, PA_reconstruction, harm; spared where the two differ


@dataclass(frozen=True)
class Transfer:
    """All cells. Rows are the models that images were made against, columns those that were scored on them."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[TransferCell, ...]

    def cell(self, made_against: str, model: str) -> TransferCell | None:
        """One cell; None if that model was not scored on those images."""
        return next((each for each in self.cells if (each.made_against, each.model) == (made_against, model)), None)

    def table(self, measure: str, title: str = "", *, names: Mapping[str, str] | None = None) -> Table:
        """One number of all cells: a row for each model that images were made against. `names` are other names for some."""
        shown = {each: (names or {}).get(each, each) for each in (*self.rows, *self.columns)}
        shade = (0.0, 100.0) if measure.startswith("FMR") else None
        rows = []
        for row in self.rows:
            cells = (self.cell(row, column) for column in self.columns)
            rows.append([shown[row], *("not scored" if cell is None else cell.values.get(measure, "") for cell in cells)])
        return Table(
            [Column("made against", "text"), *(Column(shown[each], shade=shade) for each in self.columns)], rows, title=title
        )


def transfer(scored: Mapping[str, Mapping[str, Outcomes]], *, seed: int = 0) -> Transfer:
    """The matrix from `{made against: {model: outcomes}}`; a row without its own model has no `spared`."""
    columns = dict.fromkeys([*scored, *(model for row in scored.values() for model in row)])
    cells = [
        TransferCell(against, model, _values(row[model], row.get(against) if model != against else None, seed=seed))
        for against, row in scored.items()
        for model in columns
        if model in row
    ]
    return Transfer(tuple(scored), tuple(columns), tuple(cells))


def transfer_of(runs: Sequence[Run], *, names: Sequence[str] = (), seed: int = 0) -> Transfer:
    """The matrix of runs whose images other models were scored on, by `counterfoil score`.

    Runs against the same model go by `names`, one per run, or by a number.
    """
    rows: dict[str, dict[str, Outcomes]] = {}
    models = [part_name(run.spec.get("model")) for run in runs]
    for run, against, own in zip(runs, models, names or models, strict=True):
        name, again = own if models.count(against) > 1 else against, 2
        while name in rows:
            name, again = f"{against} ({again})", again + 1
        rows[name] = {(name if model == against else model): read_outcomes(run, model=model) for model in models_of(run)}
    return transfer(rows, seed=seed)


def tables_of(matrix: Transfer, measures: Sequence[str]) -> list[Table]:
    """The matrix as tables, one per number: a row for each model that images were made against."""
    return [matrix.table(name, f"{name}: {MEANINGS[name]}, 95 % intervals") for name in measures]


def _values(outcomes: Outcomes, own: Outcomes | None, *, seed: int) -> dict[str, Estimate]:
    columns = {**columns_of(outcomes), **harm_columns(outcomes)}
    wanted: dict[str, Statistic] = {
        **{name: STATISTICS[name] for name in ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction")},
        "harm": HARM,
    }
    found = estimate(columns, wanted, seed=seed)
    return {**found, "spared": _spare_rate(outcomes, own, seed=seed)} if own is not None else found


def _spare_rate(outcomes: Outcomes, own: Outcomes, *, seed: int) -> Estimate:
    keys = np.intersect1d(outcomes.keys, own.keys)
    if not len(keys):
        both = f"{outcomes.model}, {own.model}"
        raise UsageError(f"{both}: no source image in common, so nothing to pair; run them on the same data")
    one, two = (each.take(np.isin(each.keys, keys)) for each in (own, outcomes))
    columns = {
        **{f"own {name}": each for name, each in harm_columns(one).items()},
        **{f"other {name}": each for name, each in harm_columns(two).items()},
    }
    statistic = Difference(HARM.prefixed("own "), HARM.prefixed("other "))
    return estimate(columns, {"spared": statistic}, seed=seed)["spared"]


def harm_columns(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    """One row per image: whether the model is right on its reconstruction and on what was made, where both are known."""
    before, made = outcomes.reconstruction_correct, outcomes.made_correct
    both = (outcomes.validated == YES) & (before >= NO) & (made >= NO)
    return {"both": both, "both_before_right": both & (before == YES), "both_made_right": both & (made == YES)}
