"""Outcomes as a row of a study's table, and what two models differ by. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.records import Estimate
from counterfoil.metrics.comparison import Paired, pair_of
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.measures import MEASURES
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.studies.findings import Row

USUAL = ("SA", "PA", "FMR", "FMR_matched", "VR", "steps")


def row(about: Sequence[str], outcomes: Outcomes, names: Sequence[str] = USUAL, *, seed: int = 0) -> Row:
    """The chosen numbers of one model on one run."""
    found = scores(outcomes, seed=seed)
    return Row(tuple(about), {name: found[name] for name in names})


def difference(first: Outcomes, second: Outcomes, measure: str = "FMR", *, seed: int = 0) -> Estimate:
    """By how much the first exceeds the second, paired by source image."""
    paired = Paired({"first": first, "second": second}, seed=seed)
    return pair_of(paired, MEASURES[measure], "first", "second").difference
