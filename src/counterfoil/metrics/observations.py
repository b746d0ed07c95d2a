"""Observations: one model's results on a run's images, one row each, the form that comparisons, gates, boards and slices read.

Every protocol turns its runs into this form, and tables of predictions come in it too; nothing that reads it knows a protocol.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import UsageError
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import Resamples, Seed, Statistic, estimate_one
from counterfoil.metrics.tables import amount


@dataclass(frozen=True)
class Measure:
    """One number of a run: how it is found, what it says, and whether more of it is better."""

    name: str
    statistic: Statistic
    meaning: str
    higher_is_better: bool = True
    title: str = ""  # for people, where the name is not enough

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "" if self.name.startswith("steps") else " %" if self.higher_is_better else " points"

    @property
    def difference_unit(self) -> str:
        """The unit of a difference of two of its values."""
        return "" if self.name.startswith("steps") else " points"


class Undecided(NamedTuple):
    """The number of a run's images that an oracle or people have not decided on, and what these count in meanwhile."""

    number: int = 0
    what: str = ""
    by: str = ""
    counted: str = ""

    def __str__(self) -> str:
        return f"{amount(self.number, self.what)} undecided by {self.by}, counted {self.counted}" if self.number else ""


@dataclass(frozen=True)
class Observations:
    """One row per image, edit or painted image, in the order of `keys`."""

    model: str
    keys: NDArray[np.uint64]  # eight bytes that stand for the row, to pair runs by
    columns: Mapping[str, NDArray[Any]]  # zeros and ones, or numbers, whose sums the measures are made of
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # names per row by "class", "factor" …; "" for none
    oracle: str = ""
    row: str = "image"
    cluster: NDArray[np.int64] | None = None  # rows that share a number are no more independent than one
    cluster_of: str = "source image"
    made: NDArray[np.bool_] | None = None  # which rows are made of others, where others have rows too
    made_as: str = "edit"
    undecided: Undecided = Undecided()  # of the whole run
    seed: Seed = 0  # of the run's own intervals
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # the numbers that stand in the run's results

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def clusters(self) -> int:
        """The number of source images, or prompts, the rows are of."""
        return len(self) if self.cluster is None else len(np.unique(self.cluster))

    @property
    def extent(self) -> str:
        """The number of rows, in words."""
        if self.made is not None:
            return f"{amount(self.clusters, self.cluster_of)} and {amount(int(self.made.sum()), self.made_as)} of them"
        if self.cluster is None:
            return amount(len(self), self.cluster_of)
        return amount(len(self), self.row) + (
            "" if self.clusters == len(self) else f" of {amount(self.clusters, self.cluster_of)}"
        )

    def take(self, rows: NDArray[Any]) -> Observations:
        """The same for some of the rows, whose numbers are no longer those of the run."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        return replace(
            self,
            keys=self.keys[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            groups={name: column[rows] for name, column in self.groups.items()},
            cluster=None if self.cluster is None else self.cluster[rows],
            made=None if self.made is None else self.made[rows],
            estimates={},
        )

    def group(self, name: str, *, of: str = "") -> Observations:
        """The rows of one class, factor or other group, found by its name in any case. UsageError if there is none."""
        known: dict[str, str] = {}
        for grouping in self.groups.values():
            spelt = {str(each).lower(): str(each) for each in np.unique(grouping) if each != ""}
            if name.lower() in spelt:
                return self.take(grouping == spelt[name.lower()])
            known |= spelt
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[near[0]]!r}?" if near else f"it has {', '.join(known)}"
        raise UsageError(f"{of or name}: the run has no images of a {' or '.join(self.groups)} {name!r}; {hint}")

    def estimate(self, measure: Measure, *, level: float = LEVEL) -> Estimate:
        """One number: as it stands in the run's results, or drawn from this model's columns alone."""
        known = self.estimates.get(measure.name)
        return known if known is not None and level == LEVEL else estimate_one(self.resamples(), measure.statistic, level=level)

    def resamples(self) -> Resamples:
        """Resamples of its rows, the same whatever is asked of them."""
        return Resamples(self.columns, clusters=self.cluster, seed=self.seed)

    def has(self, measure: Measure) -> bool:
        """Tell whether it has the columns that a measure is made of."""
        return all(term.part in self.columns and term.whole in self.columns for term in measure.statistic.terms)


def unit_of(name: str) -> str:
    """The unit that a number of that name is given in."""
    if name.startswith("steps"):
        return ""
    return " points" if name.startswith("drop") or name == "sensitivity" else " %"


def find_measure(name: str, known: Mapping[str, Measure]) -> Measure:
    """Find the measure of that name, in whatever case it is written."""
    spelt = {each.lower(): each for each in known}
    if name.lower() in spelt:
        return known[spelt[name.lower()]]
    near = difflib.get_close_matches(name.lower(), spelt, n=1)
    hint = f"did you mean {spelt[near[0]]!r}?" if near else f"there are {', '.join(known)}"
    raise UsageError(f"no number called {name!r}; {hint}")


def class_names(classes: Sequence[str], labels: NDArray[np.int64]) -> dict[int, str]:
    """Names of the classes among the labels, by their number; two of one name are told apart by it."""
    twice = {name for name, times in Counter(classes).items() if times > 1}
    names = {each: classes[each] for each in np.unique(labels).tolist()}
    return {each: f"{name} ({each})" if name in twice else name for each, name in names.items()}


def class_column(classes: Sequence[str], labels: NDArray[np.int64]) -> NDArray[Any]:
    """The names of the rows' classes, as a grouping."""
    names = class_names(classes, labels)
    return np.array([names[each] for each in labels.tolist()], dtype=object)
