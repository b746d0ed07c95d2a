"""The kinds of statistic: functions of named sums, worked out for many resamples at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Pad(NamedTuple):
    """Made-up images that a share is resampled with, so that it knows of outcomes that did not occur."""

    right: Floats  # of a mean, images with the most that a number can be
    wrong: Floats  # and with zero


@dataclass(frozen=True)
class Sums:
    """Sums by column, one entry a resample, and the pads of shares; the observed sums are a single entry without pads."""

    columns: Mapping[str, Floats]
    pads: Mapping[Share | Mean, Pad] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Floats:
        return self.columns[column]


@dataclass(frozen=True)
class Share:
    """Which per cent of the sum of `whole` the sum of `part` is; both are columns of zeros and ones."""

    part: str
    whole: str
    empty: str = "no images"
    """Why it is undefined when `whole` is empty."""

    def of(self, sums: Sums) -> Floats:
        """The share in each resample, NaN where undefined."""
        part, whole = sums[self.part], sums[self.whole]
        if pad := sums.pads.get(self):
            part, whole = part + pad.right, whole + pad.right + pad.wrong
        return 100 * _divided(part, whole)

    def count(self, sums: Sums) -> int:
        """How many rows it averages over."""
        return int(sums[self.whole][0])

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        return self.empty if sums[self.whole][0] == 0 else ""

    @property
    def shares(self) -> tuple[Share, ...]:
        """The shares it is made of."""
        return (self,)

    @property
    def wholes(self) -> tuple[str, ...]:
        """The columns that say which rows it averages over."""
        return (self.whole,)

    def prefixed(self, prefix: str) -> Share:
        """The same of other columns, whose names begin with `prefix`."""
        return replace(self, part=prefix + self.part, whole=prefix + self.whole)


@dataclass(frozen=True)
class Mean:
    """The sum of `part` over that of `whole`."""

    part: str
    whole: str
    empty: str = "no images"
    most: float | None = None
    """What no number exceeds, where that is known; none is below zero then."""

    def of(self, sums: Sums) -> Floats:
        """The mean in each resample, NaN where undefined."""
        part, whole = sums[self.part], sums[self.whole]
        if self.most is not None and (pad := sums.pads.get(self)):
            part, whole = part + self.most * pad.right, whole + pad.right + pad.wrong
        return _divided(part, whole)

    def count(self, sums: Sums) -> int:
        """How many rows it averages over."""
        return int(sums[self.whole][0])

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        return self.empty if sums[self.whole][0] == 0 else ""

    @property
    def shares(self) -> tuple[Mean, ...]:
        """Itself, where it is known what its numbers could have been: then it is padded as shares are."""
        return () if self.most is None else (self,)

    @property
    def wholes(self) -> tuple[str, ...]:
        """The column that says which rows it averages over."""
        return (self.whole,)

    def prefixed(self, prefix: str) -> Mean:
        """The same of other columns, whose names begin with `prefix`."""
        return replace(self, part=prefix + self.part, whole=prefix + self.whole)


@dataclass(frozen=True)
class Ratio:
    """Which per cent of the share `below` the share `above` is."""

    above: Share
    below: Share
    zero: str = "nothing to divide by"
    """Why it is undefined when `below` is 0."""

    def of(self, sums: Sums) -> Floats:
        """The ratio in each resample, NaN where undefined."""
        return 100 * _divided(self.above.of(sums), self.below.of(sums))

    def count(self, sums: Sums) -> int:
        """How many rows the upper share averages over."""
        return self.above.count(sums)

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        shares = self.above.undefined(sums) or self.below.undefined(sums)
        return shares or (self.zero if self.below.of(sums)[0] == 0 else "")

    @property
    def shares(self) -> tuple[Share, ...]:
        """Both of them."""
        return (self.above, self.below)

    @property
    def wholes(self) -> tuple[str, ...]:
        """The columns that say which rows its sides average over."""
        return (self.above.whole, self.below.whole)

    def prefixed(self, prefix: str) -> Ratio:
        """The same of other columns, whose names begin with `prefix`."""
        return replace(self, above=self.above.prefixed(prefix), below=self.below.prefixed(prefix))


@dataclass(frozen=True)
class Difference:
    """How much `above` exceeds `below`, in their unit: an accuracy drop, or one model less another."""

    above: Statistic
    below: Statistic

    def of(self, sums: Sums) -> Floats:
        """The difference in each resample, NaN where undefined."""
        return self.above.of(sums) - self.below.of(sums)

    def count(self, sums: Sums) -> int:
        """How many rows the side with fewer of them averages over."""
        return min(self.above.count(sums), self.below.count(sums))

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        return self.above.undefined(sums) or self.below.undefined(sums)

    @property
    def shares(self) -> tuple[Share | Mean, ...]:
        """Those of both sides."""
        return (*self.above.shares, *self.below.shares)

    @property
    def wholes(self) -> tuple[str, ...]:
        """The columns that say which rows its sides average over."""
        return (*self.above.wholes, *self.below.wholes)

    def prefixed(self, prefix: str) -> Difference:
        """The same of other columns, whose names begin with `prefix`."""
        return replace(self, above=self.above.prefixed(prefix), below=self.below.prefixed(prefix))


Statistic = Share | Mean | Ratio | Difference


def _divided(above: Floats, below: Floats) -> Floats:
    quotient: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return quotient
