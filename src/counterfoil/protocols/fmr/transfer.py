"""The transfer matrix: images made against one model, scored on the others.

A cell is about the images that the row's run made and its oracle accepted. Its FMR is the column's accuracy on them over
its accuracy on all source images, as published; `FMR_matched` takes both over the accepted images. A model is hurt by the
generator alone to some degree, so every cell also has the accuracy on the plain reconstructions of the same images, and
`harm`, by how much the search lowered accuracy below that. Differences from the diagonal are paired by source image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Difference, Share, Statistic, estimate
from counterfoil.metrics.observations import NO, YES, models_of
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


Matrix = dict[str, dict[str, dict[str, Estimate]]]
"""By the model that images were made against, then by the model scored on them: SA, PA, FMR, …; `spared` where the two differ."""


def transfer(scored: Mapping[str, Mapping[str, Outcomes]], *, seed: int = 0) -> Matrix:
    """The matrix from `{made against: {model: outcomes}}`; a row without its own model has no `spared`."""
    return {
        against: {
            model: _values(found, row.get(against) if model != against else None, seed=seed) for model, found in row.items()
        }
        for against, row in scored.items()
    }


def transfer_of(runs: Sequence[Run], *, names: Sequence[str] = (), seed: int = 0) -> Matrix:
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


def table_of(matrix: Matrix, measure: str, title: str = "", *, names: Mapping[str, str] = {}) -> Table:
    """One number of all cells: a row for each model that images were made against. `names` are other names for some."""
    columns = dict.fromkeys([*matrix, *(model for row in matrix.values() for model in row)])
    shade = (0.0, 100.0) if measure.startswith("FMR") else None
    rows = [
        [names.get(name, name), *(row[each].get(measure, "") if each in row else "not scored" for each in columns)]
        for name, row in matrix.items()
    ]
    heads = [Column("made against", "text"), *(Column(names.get(each, each), shade=shade) for each in columns)]
    return Table(heads, rows, title=title)


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
    statistic = Difference(HARM.with_prefix("own "), HARM.with_prefix("other "))
    return estimate(columns, {"spared": statistic}, seed=seed)["spared"]


def harm_columns(outcomes: Outcomes) -> dict[str, NDArray[Any]]:
    """One row per image: whether the model is right on its reconstruction and on what was made, where both are known."""
    before, made = outcomes.reconstruction_correct, outcomes.made_correct
    both = (outcomes.validated == YES) & (before >= NO) & (made >= NO)
    return {"both": both, "both_before_right": both & (before == YES), "both_made_right": both & (made == YES)}
