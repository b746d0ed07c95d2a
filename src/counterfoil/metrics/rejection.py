"""Whether classes look easy because the oracle gives them up early, and what FMR is when that is taken into account.

`ended` says of each image whether the oracle ended its climb (`columns.ended_by_oracle`). A climb may also be shorter than the
budget because the model was fooled or its calls were spent, which is not the oracle's doing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.columns import NO, YES
from counterfoil.metrics.estimate import Estimate, estimate
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.ranking import agreement
from counterfoil.metrics.resample import Resamples
from counterfoil.metrics.statistic import Mean, Ratio, Share, Statistic

Ended = NDArray[np.bool_]

_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"
_STOPPED = Share("stopped", "judged", "no image the oracle has decided on")
_FMR = Ratio(Share("made_right", "made", "the oracle accepted no image"), Share("clean_right", "clean", "no image"), _ALL_WRONG)
_UNSTOPPED_NONE = "the oracle stopped every climb"
_UNSTOPPED = Ratio(
    Share("whole_made_right", "whole", _UNSTOPPED_NONE), Share("whole_clean_right", "whole", _UNSTOPPED_NONE), _ALL_WRONG
)


def by_class(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> dict[str, dict[str, Estimate]]:
    """For each class, the share of climbs that the oracle stopped, and FMR."""
    found = {}
    columns = _columns(outcomes, ended)
    for label, name in outcomes.class_names.items():
        rows = {column: values[outcomes.label == label] for column, values in columns.items()}
        statistics: dict[str, Statistic] = {"stopped": _STOPPED, "FMR": _FMR}
        found[name] = estimate(rows, statistics, seed=(seed, label))
    return found


def easier_when_rejected(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> Estimate:
    """Kendall's tau over classes between how often the oracle stopped a class and its FMR; above 0 they go together."""
    columns: dict[str, NDArray[Any]] = {}
    labels = list(outcomes.class_names)
    for label in labels:
        mine = outcomes.label == label
        columns |= {f"{label} {name}": values & mine for name, values in _columns(outcomes, ended).items()}
    if not labels:
        return Estimate(None, None, None, 0, "no image")
    drawn = Resamples(columns, seed=seed)
    stopped, kept = ([each.prefixed(f"{label} ") for label in labels] for each in (_STOPPED, _FMR))
    found = agreement(drawn, stopped, kept)
    if found.note == "an order needs two models":
        return Estimate(None, None, None, found.n, "one class has nothing to be compared with")
    if found.note.startswith("all models have the same value"):
        return Estimate(None, None, None, found.n, "all classes have the same value, so there is no order")
    return found


def corrected(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> dict[str, Estimate]:
    """FMR with classes weighted as in the source images, and over the climbs that nobody stopped."""
    columns: dict[str, NDArray[Any]] = {**_columns(outcomes, ended), **_weighted(outcomes, ended)}
    weighted = Mean("weighted_right", "weighted_clean_right", "no class has both an accepted image and one that was right")
    statistics: dict[str, Statistic] = {"FMR_by_class": weighted, "FMR_unstopped": _UNSTOPPED}
    return estimate(columns, statistics, seed=seed)


def _columns(outcomes: Outcomes, ended: Ended) -> dict[str, NDArray[Any]]:
    accepted = outcomes.validated == YES
    judged = outcomes.validated >= NO
    whole = accepted & ~ended & (outcomes.made_correct >= NO) & (outcomes.clean_correct >= NO)
    made, clean = accepted & (outcomes.made_correct >= NO), outcomes.clean_correct >= NO
    return {
        "judged": judged,
        "stopped": judged & ~(accepted & ~ended),
        "made": made,
        "made_right": made & (outcomes.made_correct == YES),
        "clean": clean,
        "clean_right": clean & (outcomes.clean_correct == YES),
        "whole": whole,
        "whole_made_right": whole & (outcomes.made_correct == YES),
        "whole_clean_right": whole & (outcomes.clean_correct == YES),
    }


def _weighted(outcomes: Outcomes, ended: Ended) -> dict[str, NDArray[np.float64]]:
    """Contributions whose sums give PA, standardised to the classes of the source images, over SA of the same classes."""
    columns = _columns(outcomes, ended)
    right, wrong_or_right = columns["made_right"], columns["made"]
    weights, counted = np.zeros(len(outcomes)), np.zeros(len(outcomes), dtype=bool)
    for label in outcomes.class_names:
        mine = outcomes.label == label
        accepted = int(np.count_nonzero(mine & wrong_or_right))
        if accepted:  # a class without an accepted image has no PA to stand for
            weights[mine] = np.count_nonzero(mine & columns["clean"]) / accepted
            counted |= mine
    return {"weighted_right": 100 * weights * right, "weighted_clean_right": (counted & columns["clean_right"]).astype(float)}
