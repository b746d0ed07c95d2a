"""A measured number with its interval, and the targets that the lab's models are held to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

Z = 1.959964  # 95 % of a normal distribution lies within this many deviations


@dataclass(frozen=True)
class Reading:
    """One measured number: a share or a mean, with a 95 % interval and what it was to reach."""

    name: str
    value: float
    low: float
    high: float
    n: int
    unit: str = "%"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (self.at_most is None or self.value <= self.at_most)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def share(name: str, right: Tensor, *, at_least: float | None = None, at_most: float | None = None) -> Reading:
    """The share of True in per cent, with Wilson's interval.  # (N,) bool"""
    n, p = len(right), float(right.double().mean())
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Reading(name, 100 * p, 100 * low, 100 * high, n, at_least=at_least, at_most=at_most)


def mean(name: str, values: Tensor, unit: str, *, at_least: float | None = None, at_most: float | None = None) -> Reading:
    """The mean with a normal interval; a single value is its own interval.  # (N,)"""
    n, value = len(values), float(values.double().mean())
    half = Z * float(values.double().std()) / math.sqrt(n) if n > 1 else 0.0
    return Reading(name, value, value - half, value + half, n, unit, at_least=at_least, at_most=at_most)


def lost(name: str, before: Tensor, after: Tensor, *, at_most: float | None = None) -> Reading:
    """How many points fewer are right after than before, of the same rows.  # (N,) bool twice

    The interval is Wald's after half a row was added to each of the four cells (Agresti and Min, 2005), so that it has a width
    even if no row changed.
    """
    n, fell, rose = len(before), int((before & ~after).sum()), int((~before & after).sum())
    rows, change, moved = n + 2, fell - rose, fell + rose + 1
    half = Z * math.sqrt(moved - change * change / rows) / rows
    low, high = change / rows - half, change / rows + half
    return Reading(name, 100 * change / n, 100 * low, 100 * high, n, "points", at_most=at_most)


def median(name: str, values: Sequence[float], unit: str, *, at_most: float | None = None) -> Reading:
    """The median of a few times, with the least and the greatest of them in place of an interval."""
    return Reading(name, statistics.median(values), min(values), max(values), len(values), unit, at_most=at_most)
