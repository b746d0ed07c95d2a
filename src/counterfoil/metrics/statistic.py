"""The kinds of statistic: functions of named sums, worked out for many resamples at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
"""Sums by name, one entry a resample; the observed sums are a single one."""


class Bounds(NamedTuple):
    """A value between two bounds."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Share:
    """Which per cent of the sum of `whole` the sum of `part` is; both are columns of zeros and ones."""

    part: str
    whole: str
    empty: str = "no images"
    """Why it is undefined when `whole` is empty."""

    def of(self, sums: Sums) -> Floats:
        """The share in each resample, NaN where undefined."""
        return 100 * _divided(sums[self.part], sums[self.whole])

    def count(self, sums: Sums) -> int:
        """How many rows it averages over."""
        return int(sums[self.whole][0])

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        return self.empty if sums[self.whole][0] == 0 else ""

    def known(self, sums: Sums, clusters: Mapping[str, int], alpha: float) -> Bounds:
        """The value with the bounds that its resamples cannot know of; no width unless all outcomes agree."""
        value = float(self.of(sums)[0])
        reach = 100 * (1 - (alpha / 2) ** (1 / clusters[self.whole]))
        return Bounds(value - reach if value == 100 else value, value, value + reach if value == 0 else value)


@dataclass(frozen=True)
class Mean:
    """The sum of `total` over that of `count_of`."""

    total: str
    count_of: str
    empty: str = "no images"

    def of(self, sums: Sums) -> Floats:
        """The mean in each resample, NaN where undefined."""
        return _divided(sums[self.total], sums[self.count_of])

    def count(self, sums: Sums) -> int:
        """How many rows it averages over."""
        return int(sums[self.count_of][0])

    def undefined(self, sums: Sums) -> str:
        """Why there is no value, or nothing."""
        return self.empty if sums[self.count_of][0] == 0 else ""

    def known(self, sums: Sums, clusters: Mapping[str, int], alpha: float) -> Bounds:
        """The value; nothing is known of its bounds beside what the resamples say."""
        value = float(self.of(sums)[0])
        return Bounds(value, value, value)


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

    def known(self, sums: Sums, clusters: Mapping[str, int], alpha: float) -> Bounds:
        """The value with what the bounds of either share make of it."""
        above, below = (share.known(sums, clusters, alpha) for share in (self.above, self.below))
        return Bounds(100 * above.low / below.high, float(self.of(sums)[0]), 100 * above.high / below.low)


Statistic = Share | Mean | Ratio


def _divided(above: Floats, below: Floats) -> Floats:
    quotient: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return quotient
