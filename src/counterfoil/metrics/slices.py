"""Where a model fails: named groups of rows against the rest, with an interval, a p-value and Holm's correction.

The difference between a group and the rest, and its interval, come from one set of resamples. Groups are the protocol's (class,
factor, kind of nuisance), those of a file of one's own, and pairs of two groupings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.tables import read_table
from counterfoil.metrics.estimate import Difference, Resamples, estimate_one
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.significance import holm
from counterfoil.metrics.tables import Cell, Column, Table
from counterfoil.store.files import key_of

FEWEST = 5  # clusters that a group and the rest must have
MOST = 2000  # groups looked at


@dataclass(frozen=True)
class Slice:
    """One group of rows: its number, how far it is from the rest, and whether that can be chance."""

    name: str  # as in `class=boot`, or `class=boot & factor=background`
    inside: Estimate
    difference: Estimate  # inside less the rest
    p: float
    adjusted: float

    def significant(self, alpha: float) -> bool:
        """Whether the images show that the group differs from the rest."""
        return self.adjusted <= alpha


def slices(observed: Observations, measure: Measure, *, by: Sequence[str] = (), pairs: bool = False) -> list[Slice]:
    """Compare each group with the rest, those that are surely worst first. `by` names groupings; all, if left out."""
    unknown = [name for name in by if name not in observed.groups]
    if unknown:
        raise UsageError(f"no grouping {unknown[0]!r}; there are {', '.join(observed.groups) or 'none'}")
    found = []
    whole = np.unique([term.whole for term in measure.statistic.terms])
    counting = np.logical_or.reduce([observed.columns[name].astype(bool) for name in whole])
    for name, rows in _groups(observed, list(by or observed.groups), pairs=pairs):
        if _clusters(observed, rows & counting) < FEWEST or _clusters(observed, ~rows & counting) < FEWEST:
            continue
        columns = {f"in {column}": values * rows for column, values in observed.columns.items()}
        columns |= {f"rest {column}": values * ~rows for column, values in observed.columns.items()}
        drawn = Resamples(columns, clusters=observed.cluster, seed=observed.seed)
        inside = measure.statistic.prefixed("in ")
        lead = Difference(inside, measure.statistic.prefixed("rest "))
        difference = estimate_one(drawn, lead)
        if difference.value is not None:
            found.append(Slice(name, estimate_one(drawn, inside), difference, drawn.p_value(lead), 1.0))
    adjusted = holm([each.p for each in found])
    found = [replace(each, adjusted=p) for each, p in zip(found, adjusted, strict=True)]
    worse = -1 if measure.higher_is_better else 1

    def surely(each: Slice) -> float:
        bound = each.difference.high if measure.higher_is_better else each.difference.low
        return -worse * (bound if bound is not None else (each.difference.value or 0))

    return sorted(found, key=lambda each: (surely(each), each.name))


def table_of(found: Sequence[Slice], measure: Measure) -> Table:
    """Slices as a table."""
    columns = [
        Column("slice", "text"), Column(measure.name, unit=measure.unit),
        Column("difference from the rest", unit=measure.difference_unit, sign=True), Column("p", "p"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [[each.name, each.inside, each.difference, each.adjusted] for each in found]
    note = f"p: bootstrap that a slice is like the rest, corrected for {len(found)} slices (Holm)"
    return Table(columns, rows, title=f"{measure.name}: {measure.meaning}, by slice", notes=[note] if rows else [])


def read_slices(path: Path, observed: Observations) -> Observations:
    """Add the groupings of a CSV: an `image_id` column, and a column of names for each grouping.

    Rows of a run that the file does not name belong to no group of it.
    """
    rows = [row for _, row in read_table(path, what="slices")]
    if not rows or "image_id" not in rows[0]:
        raise UsageError(f"{path}: has no rows with an image_id; give a CSV with the columns image_id and the names of slices")
    places = {key: at for at, key in enumerate(observed.keys.tolist())}
    groups: dict[str, NDArray[Any]] = {
        name: np.full(len(observed), "", dtype=object) for name in rows[0] if name not in ("image_id", "")
    }
    known = 0
    for row in rows:
        at = places.get(key_of(row["image_id"]))
        if at is None:
            continue
        known += 1
        for name, column in groups.items():
            column[at] = row.get(name) or ""
    if not known:
        raise UsageError(f"{path}: none of its {len(rows)} image_ids is one of the run's; give the ids of the data set")
    return replace(observed, groups={**observed.groups, **groups})


def _groups(observed: Observations, by: Sequence[str], *, pairs: bool) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    single: dict[str, list[tuple[str, NDArray[np.bool_]]]] = {}
    for name in by:
        column = observed.groups[name]
        single[name] = [(f"{name}={value}", column == value) for value in sorted({*column.tolist()}) if value != ""]
    count = 0
    for each in single.values():
        for found in each:
            count += 1
            if count <= MOST:
                yield found
    for one, two in combinations(by, 2) if pairs else ():
        for first, rows in single[one]:
            for second, others in single[two]:
                count += 1
                if count <= MOST and (rows & others).any():
                    yield f"{first} & {second}", rows & others


def _clusters(observed: Observations, rows: NDArray[np.bool_]) -> int:
    return int(rows.sum()) if observed.cluster is None else len(np.unique(observed.cluster[rows]))
