"""Outcomes as rows of a study's tables, and what two models differ by. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterfoil.metrics.comparison import Paired, pair_of
from counterfoil.metrics.estimate import Estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.measures import MEASURES
from counterfoil.metrics.outcomes import Outcomes
from counterfoil.studies.findings import Row, Table

USUAL = ("SA", "PA", "FMR", "FMR_matched", "VR", "steps")


def row(about: Sequence[str], outcomes: Outcomes, names: Sequence[str] = USUAL, *, seed: int = 0) -> Row:
    """The chosen numbers of one model on one run."""
    found = scores(outcomes, seed=seed)
    return Row(tuple(about), {name: found[name] for name in names})


def table(title: str, about: str, groups: Mapping[str, Outcomes], names: Sequence[str] = USUAL, *, seed: int = 0) -> Table:
    """One row for each of some outcomes by name."""
    return Table(title, (about,), tuple(row((name,), each, names, seed=seed) for name, each in groups.items()))


def difference(first: Outcomes, second: Outcomes, measure: str = "FMR", *, seed: int = 0) -> Estimate:
    """By how much the first exceeds the second, paired by source image."""
    paired = Paired({"first": first, "second": second}, seed=seed)
    return pair_of(paired, MEASURES[measure], "first", "second").difference


def differences(
    title: str, pairs: Mapping[str, tuple[Outcomes, Outcomes]], measures: Sequence[str] = ("FMR", "FMR_matched"), *, seed: int = 0
) -> Table:
    """Paired differences by name, in points."""
    rows = [
        Row((name,), {measure: difference(first, second, measure, seed=seed) for measure in measures})
        for name, (first, second) in pairs.items()
    ]
    return Table(title, ("difference, in points",), tuple(rows))
