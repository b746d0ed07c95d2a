"""Slices: named groups of rows against the rest, with an interval, a p-value and Holm's correction.

The difference between a group and the rest, and its interval, come from one set of resamples. Groups are the protocol's (class,
factor, kind of nuisance), those of a file of one's own, and pairs of two groupings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.tables import read_table
from counterfoil.metrics.estimate import Difference, Resamples, estimate_one, holm
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import Cell, Column, Table
from counterfoil.store.files import key_of

FEWEST = 5  # clusters that a group and the rest must have
MOST = 2000  # groups looked at


@dataclass(frozen=True)
class Slice:
    """One group of rows: its number, how far it is from the rest, and whether that can be chance."""

    where: tuple[tuple[str, str], ...]  # groupings with a name of each
    inside: Estimate
    difference: Estimate  # inside less the rest
    p: float
    adjusted: float

    @property
    def name(self) -> str:
        """As in `class=boot`, or `class=boot & factor=background`."""
        return " & ".join(f"{grouping}={value}" for grouping, value in self.where)

    def keys(self, observed: Observations) -> set[int]:
        """The keys of its rows."""
        rows = np.logical_and.reduce([observed.groups[grouping] == value for grouping, value in self.where])
        return set(observed.keys[rows].tolist())

    def significant(self, alpha: float) -> bool:
        """Tell whether the images show that the group differs from the rest."""
        return self.adjusted <= alpha

    def worse(self, measure: Measure, *, alpha: float = 0.05) -> bool:
        """Tell whether the images show that the model does worse in the group."""
        return self.significant(alpha) and ((self.difference.value or 0) < 0) == measure.higher_is_better


def slices(observed: Observations, measure: Measure, *, by: Sequence[str] = (), pairs: bool = False) -> list[Slice]:
    """Compare each group with the rest, those that are surely worst first. `by` names groupings; all, if left out."""
    unknown = [name for name in by if name not in observed.groups]
    if unknown:
        raise UsageError(f"no grouping {unknown[0]!r}; there are {', '.join(observed.groups) or 'none'}")
    terms = measure.statistic.terms
    columns = {name: observed.columns[name] for name in sorted({each for term in terms for each in (term.part, term.whole)})}
    counting = np.logical_or.reduce([columns[term.whole].astype(bool) for term in terms])
    inside = measure.statistic.with_prefix("in ")
    lead = Difference(inside, measure.statistic.with_prefix("rest "))
    draw = _drawing(columns, observed)
    found = []
    for where, rows in _groups(observed, list(by or observed.groups), pairs=pairs):
        if _clusters(observed, rows & counting) < FEWEST or _clusters(observed, ~rows & counting) < FEWEST:
            continue
        drawn = draw(rows)
        difference = estimate_one(drawn, lead)
        if difference.value is not None:
            found.append(Slice(where, estimate_one(drawn, inside), difference, drawn.p_value(lead), 1.0))
    adjusted = holm([each.p for each in found])
    found = [replace(each, adjusted=p) for each, p in zip(found, adjusted, strict=True)]
    worse = -1 if measure.higher_is_better else 1

    def surely(each: Slice) -> float:
        bound = each.difference.high if measure.higher_is_better else each.difference.low
        return -worse * (bound if bound is not None else (each.difference.value or 0))

    return sorted(found, key=lambda each: (surely(each), each.name))


def table_of(found: Sequence[Slice], measure: Measure, *, among: int | None = None) -> Table:
    """Slices as a table; `among` is the number of those that were tested, where these are some."""
    columns = [
        Column("slice", "text"),
        Column(measure.name, unit=measure.unit, axis=(0, 100) if measure.unit == " %" else None),
        Column("difference from the rest", unit=measure.difference_unit, sign=True), Column("p", "p"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [[each.name, each.inside, each.difference, each.adjusted] for each in found]
    note = f"p: bootstrap that a slice is like the rest, corrected for {among or len(found)} slices (Holm)"
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


Where = tuple[tuple[str, str], ...]


def _groups(observed: Observations, by: Sequence[str], *, pairs: bool) -> Iterator[tuple[Where, NDArray[np.bool_]]]:
    """Single groups, then pairs of groups of two groupings; no more than `MOST`."""
    single: dict[str, list[tuple[Where, NDArray[np.bool_]]]] = {}
    for name in by:
        values, codes = np.unique(observed.groups[name], return_inverse=True)
        single[name] = [(((name, str(value)),), codes == at) for at, value in enumerate(values) if value != ""]
    both = (
        (first + second, rows & others)
        for one, two in (combinations(by, 2) if pairs else ())
        for first, rows in single[one]
        for second, others in single[two]
    )
    yield from islice(chain(*single.values(), ((where, rows) for where, rows in both if rows.any())), MOST)


def _drawing(columns: Mapping[str, NDArray[Any]], observed: Observations) -> Callable[[NDArray[np.bool_]], Resamples]:
    """Give what draws resamples of a group and of the rest. Equal rows are counted once for all groups."""
    if observed.cluster is not None:

        def of_clusters(rows: NDArray[np.bool_]) -> Resamples:
            sides = {"in ": rows, "rest ": ~rows}
            parted = {side + name: values * inside for side, inside in sides.items() for name, values in columns.items()}
            return Resamples(parted, clusters=observed.cluster, seed=observed.seed)

        return of_clusters
    values = np.stack([column.astype(np.float64) for column in columns.values()], axis=1)
    kinds, codes = np.unique(values, axis=0, return_inverse=True)
    nothing = np.zeros_like(kinds)
    names = [side + name for side in ("in ", "rest ") for name in columns]
    parts = np.block([[kinds, nothing], [nothing, kinds]])  # (2 × kinds, 2 × columns)

    def of_rows(rows: NDArray[np.bool_]) -> Resamples:
        counts = np.concatenate([np.bincount(codes[side], minlength=len(kinds)) for side in (rows, ~rows)])
        return Resamples(dict(zip(names, parts.T, strict=True)), counts=counts, seed=observed.seed)

    return of_rows


def _clusters(observed: Observations, rows: NDArray[np.bool_]) -> int:
    return int(rows.sum()) if observed.cluster is None else len(np.unique(observed.cluster[rows]))
