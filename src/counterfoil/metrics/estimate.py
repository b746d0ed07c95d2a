"""Numbers that carry their n and a 95 % interval, from a bootstrap clustered by source image.

Every statistic here is a function of sums over clusters. All statistics of one call see the same resamples: the interval
of a ratio is that of the ratio, its two sides drawn together. `resample.py` says how; docs/intervals.md says how often the
intervals hold the truth.

An interval always holds its value. A share of 0 or 100 % reaches as far as the exact (Clopper-Pearson) bound,
100 × (1 − (α/2)^(1/n)) away from its value. Means of equal numbers have a width of zero and say so in a note.

A ratio is no surer than what it divides by. With fewer than five source images that count on either side, or that are right
below, anything from next to nothing to many times the value would fit the images; such a ratio has its value and, in place of
an interval, a note. So has a mean over a single cluster, which shows nothing of how far others would differ; a share of one knows
what it could have been. So has a difference of which either is a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from counterfoil.metrics.resample import RESAMPLES, Resamples
from counterfoil.metrics.statistic import Difference, Mean, Ratio, Share, Statistic

LEVEL = 0.95
FEWEST = 5  # source images that a ratio's interval takes: on either side, and right ones to divide by

__all__ = ["FEWEST", "LEVEL", "RESAMPLES", "Estimate", "estimate", "estimate_one", "exact_reach"]


@dataclass(frozen=True)
class Estimate:
    """A number, its interval and how many images it averages over. If it or its interval is undefined, `note` says why."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in `results.json`."""
        entry = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        return {**entry, "note": self.note} if self.note else entry

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Estimate:
        """From an entry of `results.json`."""
        return cls(entry["value"], entry["low"], entry["high"], entry["n"], entry.get("note", ""))


def estimate(
    columns: Mapping[str, NDArray[Any]],
    statistics: Mapping[str, Statistic],
    *,
    seed: int | tuple[int, ...] = 0,
    clusters: NDArray[Any] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Estimate]:
    """Estimates of all `statistics` from the same resamples of `columns`.

    Rows of one source image share a number in `clusters` and are drawn together; without it every row is its own.
    """
    drawn = Resamples(columns, clusters=clusters, seed=seed, resamples=resamples)
    return {name: estimate_one(drawn, each, level=level) for name, each in statistics.items()}


def estimate_one(drawn: Resamples, statistic: Statistic, *, level: float = LEVEL) -> Estimate:
    """The estimate of one statistic from resamples that are there."""
    alpha = 1 - level
    n = statistic.count(drawn.observed)
    if reason := statistic.undefined(drawn.observed):
        return Estimate(None, None, None, n, reason)
    value = float(statistic.of(drawn.observed)[0])
    if few := _too_few(drawn, statistic):
        return Estimate(value, None, None, n, few)
    low, high = drawn.interval(statistic, alpha)
    if isinstance(statistic, Share) and value in (0, 100):
        reach = exact_reach(drawn.clusters[statistic.whole], alpha)
        low, high = (min(low, 100 - reach), value) if value else (value, max(high, reach))
    low, high = min(_rounded(low, value), value), max(_rounded(high, value), value)
    note = "all images alike, so the interval has no width" if low == high else ""
    return Estimate(value, low, high, n, note)


def exact_reach(n: int, alpha: float = 1 - LEVEL) -> float:
    """How far from 0 or 100 % a share of `n` that is one of these may lie (Clopper and Pearson)."""
    return float(100 * (1 - (alpha / 2) ** (1 / n)))


def _too_few(drawn: Resamples, statistic: Statistic) -> str:
    """Why there is no interval, or nothing."""
    if isinstance(statistic, Difference):
        return _too_few(drawn, statistic.above) or _too_few(drawn, statistic.below)
    if isinstance(statistic, Mean) and drawn.clusters[statistic.whole] == 1:
        return "no interval from one source image or prompt alone"
    if isinstance(statistic, Ratio):
        images, right = min(drawn.clusters[whole] for whole in statistic.wholes), drawn.clusters[statistic.below.part]
        if images < FEWEST:
            return f"too few images for an interval, {images} where {FEWEST} are needed"
        if right < FEWEST:
            return f"too few images for an interval, {right} right ones to divide by where {FEWEST} are needed"
    return ""


def _rounded(bound: float, value: float) -> float:
    """Without the digits that hang on a machine's arithmetic, so that the same run gives the same bytes elsewhere."""
    return value if abs(bound - value) < 1e-9 else round(bound, 9)
