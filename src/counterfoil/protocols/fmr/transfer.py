"""The transfer matrix: images made against one model, scored on the others.

A cell is about the images that the row's run made and its oracle accepted. Its FMR is the column's accuracy on them over
its accuracy on all source images, as published; `FMR_matched` takes both over the accepted images. A model is hurt by the
generator alone to some degree, so every cell also has the accuracy on the plain reconstructions of the same images, and
`harm`, by how much the search lowered accuracy below that. Differences from the diagonal are paired by source image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Paired, pair_of
from counterfoil.metrics.estimate import Difference, Ratio, Share
from counterfoil.metrics.observations import Measure, Observations, models_of
from counterfoil.metrics.tables import Column, Table
from counterfoil.protocols.fmr.results import MEASURES, observe
from counterfoil.store import Run

_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"
_NONE, _ALL = "no accepted image that the model was scored on", "the oracle stopped every climb"
_BEFORE, _AFTER = Share("both_before_right", "both", _NONE), Share("both_made_right", "both", _NONE)
_WHOLE, _WHOLE_CLEAN = Share("whole_made_right", "whole", _ALL), Share("whole_clean_right", "whole", _ALL)
_FURTHER = (
    Measure(
        "harm",
        Difference(_BEFORE, _AFTER),
        "points of accuracy that the search took, beyond what the plain reconstruction takes",
        higher_is_better=False,
    ),
    Measure(
        "stopped",
        Share("stopped", "judged", "no image the oracle has decided on"),
        "share of climbs that the oracle stopped",
        higher_is_better=False,
    ),
    Measure(
        "drop_random",
        Difference(Share("reconstruction_right", "reconstruction", _NONE), Share("random_right", "random", "no random control")),
        "points of accuracy that the control took beyond the plain reconstruction",
        higher_is_better=False,
    ),
    Measure("FMR_unstopped", Ratio(_WHOLE, _WHOLE_CLEAN, _ALL_WRONG), "FMR over the other climbs"),
)
EVERY: Mapping[str, Measure] = {**MEASURES, **{each.name: each for each in _FURTHER}}
"""The numbers in a run's results, and others that can be asked of one."""

MEANINGS = {
    "FMR": "accuracy on the images, as a share of accuracy on all source images",
    "FMR_matched": "the same over the images whose image the oracle accepts",
    "harm": EVERY["harm"].meaning,
    "spared": "points by which a model is harmed less than the one the images were made against",
}
"""A sentence for each number of a cell."""


Matrix = dict[str, dict[str, dict[str, Estimate]]]
"""By the model that images were made against, then by the model scored on them: SA, PA, FMR, …; `spared` where the two differ."""


def transfer(scored: Mapping[str, Mapping[str, Observations]], *, seed: int = 0) -> Matrix:
    """The matrix from `{made against: {model: observations}}`; a row without its own model has no `spared`."""
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
    rows: dict[str, dict[str, Observations]] = {}
    models = [part_name(run.spec.get("model")) for run in runs]
    for run, against, own in zip(runs, models, names or models, strict=True):
        name, again = own if models.count(against) > 1 else against, 2
        while name in rows:
            name, again = f"{against} ({again})", again + 1
        rows[name] = {(name if model == against else model): observe(run, model=model) for model in models_of(run)}
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


def _values(seen: Observations, own: Observations | None, *, seed: int) -> dict[str, Estimate]:
    found = {name: seen.estimate(EVERY[name]) for name in ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction", "harm")}
    if own is None:
        return found
    return {**found, "spared": pair_of(Paired({"own": own, "other": seen}, seed=seed), EVERY["harm"], "own", "other").difference}
