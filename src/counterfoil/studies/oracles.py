"""Another oracle in the loop and on the same images: agreement, and classes that look easy because they are rejected more.

The oracle ends a climb when it no longer sees the class. A class that it gives up early keeps only images that hardly
changed, and so looks robust: the paper's primates (Table 13). The study sets each class's FMR against how often the oracle
stopped it, warns where the two go together, and gives FMR with classes weighted as in the source images, FMR over the
climbs that no oracle stopped, and the bounds from the oracle's audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.comparison import order_agreement
from counterfoil.metrics.estimate import (
    Floats,
    Ratio,
    Resamples,
    Share,
    Statistic,
    Sums,
    divide,
    estimate,
    few_to_divide_by,
)
from counterfoil.metrics.observations import NO, YES
from counterfoil.protocols.fmr.results import Outcomes, audit, read_outcomes, scores
from counterfoil.studies.base import Claim, Findings, Study, StudyRow, StudyTable
from counterfoil.studies.runs import Runs

_SHOWN = ("SA", "VR", "PA", "FMR", "FMR_matched", "steps")

Ended = NDArray[np.bool_]
"""For each image, whether the oracle ended its climb; it may also be shorter because the model was fooled."""

_ALL_WRONG = "SA is 0: there is no accuracy to keep a share of"
_STOPPED = Share("stopped", "judged", "no image the oracle has decided on")
_FMR = Ratio(Share("made_right", "made", "the oracle accepted no image"), Share("clean_right", "clean", "no image"), _ALL_WRONG)
_UNSTOPPED_NONE = "the oracle stopped every climb"
_UNSTOPPED = Ratio(
    Share("whole_made_right", "whole", _UNSTOPPED_NONE), Share("whole_clean_right", "whole", _UNSTOPPED_NONE), _ALL_WRONG
)


def run(runs: Runs) -> Findings:
    """Every model under every oracle, the oracles on each other's images, and the classes."""
    own = runs.settings.oracle
    oracles = [own, *(PartSpec(name=name) for name in runs.options["oracles"] if name != own.name)]
    seed = runs.settings.seed
    made = {(oracle.name, model.name): runs.make(model, oracle=oracle) for oracle in oracles for model in runs.models}
    found = {key: read_outcomes(each) for key, each in made.items()}
    loops, fixes, classes, claims = [], [], [], []
    for (oracle, model), outcomes in found.items():
        values = scores(outcomes, seed=seed)
        ended = outcomes.stopped
        loops.append(StudyRow((oracle, model), {name: values[name] for name in _SHOWN}))
        bounds = {name: Estimate.from_dict(audit(outcomes, seed=seed)[name]) for name in ("lost", "FMR_lost", "FMR_kept")}
        fixes.append(StudyRow((oracle, model), {"FMR": values["FMR"], **correct(outcomes, ended, seed=seed), **bounds}))
        classes += [StudyRow((oracle, model, name), each) for name, each in by_class(outcomes, ended, seed=seed).items()]
        claims.append(_warning(oracle, model, rejection_bias(outcomes, ended, seed=seed)))
    shared = [
        StudyRow(
            (one.name, other.name, model.name),
            _agreement(found[one.name, model.name], runs.judge(made[one.name, model.name], other), seed=seed),
        )
        for one, other in permutations(oracles, 2)
        for model in runs.models
    ]
    tables = (
        StudyTable("Each oracle in the loop", ("oracle", "model"), tuple(loops)),
        StudyTable("The images of one oracle's runs, judged by another", ("made under", "judged by", "model"), tuple(shared)),
        StudyTable("By class: climbs the oracle stopped, and FMR", ("oracle", "model", "class"), tuple(classes)),
        StudyTable("FMR, corrected and bounded", ("oracle", "model"), tuple(fixes)),
    )
    return Findings(tables if shared else (tables[0], *tables[2:]), tuple(claims))


def by_class(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> dict[str, dict[str, Estimate]]:
    """For each class, the share of climbs that the oracle stopped, and FMR."""
    found = {}
    columns = _columns(outcomes, ended)
    for label, name in outcomes.class_names.items():
        rows = {column: values[outcomes.label == label] for column, values in columns.items()}
        statistics: dict[str, Statistic] = {"stopped": _STOPPED, "FMR": _FMR}
        found[name] = estimate(rows, statistics, seed=(seed, label))
    return found


def rejection_bias(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> Estimate:
    """Kendall's tau over classes between how often the oracle stopped a class and its FMR; above 0 they go together."""
    columns: dict[str, NDArray[Any]] = {}
    labels = list(outcomes.class_names)
    for label in labels:
        mine = outcomes.label == label
        columns |= {f"{label} {name}": values & mine for name, values in _columns(outcomes, ended).items()}
    if not labels:
        return Estimate(None, None, None, 0, "no image")
    drawn = Resamples(columns, seed=seed)
    stopped, kept = ([each.with_prefix(f"{label} ") for label in labels] for each in (_STOPPED, _FMR))
    found = order_agreement(drawn, stopped, kept)
    if found.note == "an order needs two models":
        return Estimate(None, None, None, found.n, "one class has nothing to be compared with")
    if found.value is None and "model" in found.note:
        return replace(found, note=found.note.replace("models", "classes"))
    return found


@dataclass(frozen=True)
class Standardised(Statistic):
    """PA over SA with every class weighted as among the source images; both weights and accuracies are resampled."""

    parts: tuple[Ratio, ...] = ()

    def of(self, sums: Sums) -> Floats:
        above, below = np.zeros(1), np.zeros(1)
        for each in self.parts:
            weight = sums[each.below.whole]
            above, below = above + weight * each.above.of(sums), below + weight * each.below.of(sums)
        return 100 * divide(above, below)

    def count(self, sums: Sums) -> int:
        return sum(each.count(sums) for each in self.parts)

    def reason(self, sums: Sums) -> str:
        right = sum(float(sums[each.below.part][0]) for each in self.parts)
        return "" if right else "no class has both an accepted image and one that was right"

    def too_few(self, clusters: Mapping[str, int]) -> str:
        return few_to_divide_by(self._images(clusters), sum(clusters[each.below.part] for each in self.parts))

    def rests_on(self, clusters: Mapping[str, int]) -> int:
        return self._images(clusters) - len(self.parts) + 1  # a mean per class is taken from them

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, parts=tuple(each.with_prefix(prefix) for each in self.parts))

    def _images(self, clusters: Mapping[str, int]) -> int:
        return min(sum(clusters[getattr(each, side).whole] for each in self.parts) for side in ("above", "below"))


def correct(outcomes: Outcomes, ended: Ended, *, seed: int = 0) -> dict[str, Estimate]:
    """FMR with classes weighted as in the source images, and over the climbs that no oracle stopped."""
    columns = _columns(outcomes, ended)
    found = estimate(columns, {"FMR_unstopped": _UNSTOPPED}, seed=seed)
    strata: dict[str, NDArray[Any]] = {}
    classes = []
    for label in outcomes.class_names:
        mine = outcomes.label == label
        if (mine & columns["made"]).any():  # a class without an accepted image has no PA to stand for
            strata |= {f"{label} {name}": columns[name] & mine for name in ("made", "made_right", "clean", "clean_right")}
            classes.append(_FMR.with_prefix(f"{label} "))
    left_out = len(outcomes.class_names) - len(classes)
    note = f"{left_out} of {len(outcomes.class_names)} classes have no accepted image and are left out" if left_out else ""
    if not classes:
        by_class = Estimate(None, None, None, 0, "no class has both an accepted image and one that was right")
    else:
        by_class = estimate(strata, {"": Standardised(tuple(classes))}, seed=(seed, 6))[""]
    return {"FMR_by_class": replace(by_class, note="; ".join(filter(None, (by_class.note, note)))), **found}


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


def _agreement(own: Outcomes, other: Outcomes, *, seed: int) -> dict[str, Estimate]:
    """Estimate how often the second oracle accepts what the first accepted, and FMR according to the second."""
    accepted = own.validated == YES
    asked, clean = accepted & (other.validated >= NO), (own.oracle_clean >= NO) & (other.oracle_clean >= NO)
    columns = {
        "made": asked,
        "made_same": asked & (other.validated == YES),
        "clean": clean,
        "clean_same": clean & (own.oracle_clean == other.oracle_clean),
    }
    none = "no image that both judged"
    statistics = {
        "agree on made": Share("made_same", "made", none),
        "agree on source images": Share("clean_same", "clean", none),
    }
    found = scores(other, seed=seed)
    before = scores(own, seed=seed)["FMR"]
    return {**estimate(columns, statistics, seed=seed), "FMR by the first": before, "FMR by the second": found["FMR"]}


def _warning(oracle: str, model: str, tau: Estimate) -> Claim:
    """Claim that FMR of this model is not the oracle's doing."""
    claim = f"{model} under {oracle}: classes that the oracle stops more do not look easier"
    if tau.value is None or tau.low is None:
        return Claim(claim, None, f"undefined: {tau.note}", required=False)
    text = f"Kendall's tau {tau.value:.2f} ({tau.low:.2f} to {tau.high:.2f}) over {tau.n} classes".replace("-", "−")
    holds = False if tau.low > 0 else True if (tau.high or 0) < 0 else None
    advice = "; read the corrected FMR" if tau.value > 0 else ""
    return Claim(claim, holds, text + advice, required=False)


STUDIES = {
    "oracles": Study(
        "oracles",
        "Table 13's primates, and section 5's discussion of the oracle; the paper swaps none",
        run,
        least_models=1,
        options={"oracles": ()},
    )
}
