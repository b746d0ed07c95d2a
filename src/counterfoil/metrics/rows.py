"""What runs are compared and gated by, whatever their protocol: columns whose sums its measures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.fmr import columns_of
from counterfoil.metrics.outcomes import Outcomes, named_classes


class Words(NamedTuple):
    """What a protocol's rows are called, and what those are that go together."""

    row: str
    group: str


WORDS = {
    "fmr": Words("image", "source image"),
    "lance": Words("picture", "source image"),
    "imagenet-d": Words("picture", "prompt"),
}


class Undecided(NamedTuple):
    """How many pictures of a run somebody has not decided on, and what these count in meanwhile."""

    number: int = 0
    what: str = ""
    by: str = ""
    counted: str = ""

    def __str__(self) -> str:
        return f"{counted(self.number, self.what)} undecided by {self.by}, counted {self.counted}" if self.number else ""


@dataclass(frozen=True)
class Rows:
    """One row a picture, in the order of `keys`: of FMR a source image, of LANCE a source image or an edit, of ImageNet-D a
    painted picture."""

    protocol: str
    model: str
    classes: tuple[str, ...]
    keys: NDArray[np.uint64]  # eight bytes that stand for the picture, to pair runs by
    label: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    source: NDArray[np.int64] | None = None  # rows that share a number are no more independent than one
    factor: NDArray[np.str_] | None = None  # what was edited or painted, where that is known
    undecided: Undecided = Undecided()  # of the whole run
    seed: int | tuple[int, ...] = 0  # of the run's own intervals

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def class_names(self) -> dict[int, str]:
        """What the classes that have a picture go by, by their number."""
        return named_classes(self.classes, self.label)

    @property
    def groups(self) -> int:
        """How many source images, or prompts, the rows are of."""
        return len(self) if self.source is None else len(np.unique(self.source))

    @property
    def extent(self) -> str:
        """How many there are of what, in words."""
        row, group = WORDS[self.protocol]
        if self.protocol == "lance" and self.factor is not None:
            return f"{counted(self.groups, group)} and {counted(int(np.count_nonzero(self.factor != '')), 'edit')} of them"
        if self.protocol == "imagenet-d":
            return counted(len(self), row) + ("" if self.groups == len(self) else f" of {counted(self.groups, group)}")
        return counted(self.groups, group)

    def take(self, rows: NDArray[Any]) -> Rows:
        """The same for some of the rows."""
        return replace(
            self,
            keys=self.keys[rows],
            label=self.label[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            source=None if self.source is None else self.source[rows],
            factor=None if self.factor is None else self.factor[rows],
        )


def rows_of(found: Outcomes | Rows) -> Rows:
    """Outcomes as rows; rows as they are."""
    if isinstance(found, Rows):
        return found
    return Rows(
        protocol="fmr",
        model=found.model,
        classes=found.classes,
        keys=found.keys,
        label=found.label,
        columns=columns_of(found),
        source=found.source,
        undecided=Undecided(found.pending, "image", found.oracle, "in SA alone"),
    )


def counted(number: int, noun: str) -> str:
    """`1 edit`, `2 edits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
