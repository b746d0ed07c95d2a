"""Numbers that carry their n and a 95 % interval, from a bootstrap clustered by source image.

Every statistic here is a function of sums over clusters, so a resample needs only how often each cluster was drawn. All
statistics of one call see the same resamples: the interval of a ratio is that of the ratio, its two sides drawn together.

Intervals are percentile intervals, widened to hold the value itself where a skewed resampling distribution would leave it
out. A bootstrap knows nothing of outcomes that did not occur: when every image agrees it answers a width of zero. A share
of 0 or 100 % therefore gets the exact (Clopper-Pearson) bound instead, 100 × (1 − (α/2)^(1/n)) away from its value, and a
ratio with such a share on either side is widened to what that bound makes of it. Means of equal numbers keep their width
of zero and say so in a note. Resamples in which a statistic is undefined (nothing to divide by) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.statistic import Floats, Statistic

LEVEL = 0.95
RESAMPLES = 2000

_DRAWS = 200_000  # at a time: a few megabytes


@dataclass(frozen=True)
class Estimate:
    """A number, its interval and how many images it averages over. `value` is None, and `note` says why, if undefined."""

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
    names = list(columns)
    values = np.stack([np.asarray(columns[name], dtype=np.float64) for name in names], axis=1)  # (rows, columns)
    if clusters is not None:
        values = _summed(values, clusters)
    observed = _named(names, values.sum(axis=0, keepdims=True))
    occupied = dict(zip(names, np.count_nonzero(values, axis=0).tolist(), strict=True))
    drawn = _named(names, _resampled_sums(values, resamples=resamples, seed=seed)) if len(values) else observed
    return {name: _one(each, observed, drawn, occupied, 1 - level) for name, each in statistics.items()}


def _one(
    statistic: Statistic,
    observed: Mapping[str, Floats],
    drawn: Mapping[str, Floats],
    occupied: Mapping[str, int],
    alpha: float,
) -> Estimate:
    n = statistic.count(observed)
    reason = statistic.undefined(observed)
    if reason:
        return Estimate(None, None, None, n, reason)
    low, value, high = statistic.known(observed, occupied, alpha)
    seen = statistic.of(drawn)
    bottom, top = np.nanquantile(seen, [alpha / 2, 1 - alpha / 2]).tolist() if np.isfinite(seen).any() else (value, value)
    low, high = min(low, value, bottom), max(high, value, top)
    note = "all images alike, so the interval has no width" if low == high else ""
    return Estimate(value, low, high, n, note)


def _named(names: list[str], sums: Floats) -> dict[str, Floats]:
    return {name: sums[:, index] for index, name in enumerate(names)}


def _summed(values: Floats, clusters: NDArray[Any]) -> Floats:
    """One row a cluster, in the order of the clusters' numbers."""
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.zeros((int(places.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(sums, places, values)
    return sums


def _resampled_sums(values: Floats, *, resamples: int, seed: int | tuple[int, ...]) -> Floats:
    """Sums over as many clusters as there are, drawn with replacement, `resamples` times.  # → (resamples, columns)"""
    sums: Floats = np.concatenate([drawn @ values for drawn in _draws(len(values), resamples, seed)])
    return sums


def _draws(count: int, resamples: int, seed: int | tuple[int, ...]) -> Iterator[Floats]:
    """How often each cluster is drawn in each resample, some resamples at a time.  # (chunk, count)"""
    generator = np.random.default_rng(seed)
    chunk = max(1, _DRAWS // count)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        places = generator.integers(0, count, size=(rows, count))
        places += np.arange(rows)[:, None] * count
        yield np.bincount(places.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)
