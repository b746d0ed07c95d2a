"""Resamples of clustered rows: what a number might have been with other images of the same kind.

A Bayesian bootstrap (Rubin 1981): instead of being drawn a whole number of times, each cluster gets a random weight, and
the weights are exponential. Every statistic is a function of weighted sums, and all of them see the same weights, so a
ratio or a difference is resampled jointly. Clusters with equal rows get their weights together, a gamma variate, which is
the same thing and lets 50,000 images cost as little as the few dozen kinds of them.

A bootstrap knows nothing of outcomes that did not occur. Each share is therefore padded with made-up images, right and
wrong in equal parts: one of each for a share by itself, half of each for both shares of a ratio, a third of each for the
four in a difference of ratios, where more would drown what the images themselves say. A mean of numbers that cannot exceed
a known one is padded with that number for its upper bound and with zero for its lower one: its spread does not follow from
its value, and both together could move the interval past it. A made-up image weighs as much as a cluster would if its rows
always agreed, that is the sum of squared cluster sizes over the sum of sizes. With one row a cluster, a padded share is
distributed as Beta(right + 1, wrong + 1). Ratios and differences are cut by Student's t rather than the normal
curve, as their spread has to be estimated. docs/intervals.md has the measured coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from counterfoil.metrics.statistic import Floats, Mean, Pad, Share, Statistic, Sums

RESAMPLES = 2000

_WEIGHTS = 200_000  # at a time: a few megabytes
_MANY, _FEW = 100, 4
"""Of so many kinds most have a cluster or two, and a gamma variate takes as long as this many exponential ones."""


class Resamples:
    """The same resamples for any number of statistics over the same rows."""

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        clusters: NDArray[Any] | None = None,
        seed: int | tuple[int, ...] = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        """Rows of one source image share a number in `clusters` and are drawn together; without it every row is its own."""
        names = list(columns)
        values = np.stack([np.asarray(columns[name], dtype=np.float64) for name in names], axis=1)  # (rows, columns)
        if clusters is not None:
            values = _summed(values, clusters)
        self.seed = seed if isinstance(seed, tuple) else (seed,)
        self.resamples = resamples
        self.observed = Sums(_named(names, values.sum(axis=0, keepdims=True)))
        self.clusters = dict(zip(names, np.count_nonzero(values, axis=0).tolist(), strict=True))
        """How many clusters have something in each column."""
        self._sizes = dict(zip(names, _sizes(values).tolist(), strict=True))
        self._names = names
        self._kinds, self._counts = _kinds(values)
        self._padding: dict[tuple[Share | Mean, float], Pad] = {}
        self._drawn = _named(names, self._weighted_sums())

    def values(self, statistic: Statistic) -> Floats:
        """The statistic in each resample.  # (resamples,)"""
        return statistic.of(Sums(self._drawn, self._pads(statistic)))

    def interval(self, statistic: Statistic, alpha: float) -> tuple[float, float]:
        """The bounds that leave out `alpha / 2` on either side."""
        tail = self._tail(statistic, alpha / 2)
        pads = self._pads(statistic)
        lower = upper = pads
        if isinstance(statistic, Mean):
            lower = {share: Pad(0 * pad.right, pad.wrong) for share, pad in pads.items()}
            upper = {share: Pad(pad.right, 0 * pad.wrong) for share, pad in pads.items()}
        low = float(np.quantile(statistic.of(Sums(self._drawn, lower)), tail))
        return low, float(np.quantile(statistic.of(Sums(self._drawn, upper)), 1 - tail))

    def p_value(self, statistic: Statistic) -> float:
        """Two-sided, that it is zero: the smallest `alpha` whose interval leaves zero out.

        Where no resample lies beyond zero they cannot tell how small it is, and the normal curve does.
        """
        values = self.values(statistic)
        beyond = min(int(np.count_nonzero(values <= 0)), int(np.count_nonzero(values >= 0)))
        tail = max(beyond, 1) / (len(values) + 1)
        if not beyond and (spread := float(values.std())) > 0:
            tail = min(tail, max(float(ndtr(-abs(float(values.mean())) / spread)), 1e-12))
        return float(min(1.0, 2 * self._inverse_tail(statistic, tail)))

    def _weighted_sums(self) -> Floats:
        """Sums over the clusters under random weights.  # (resamples, columns)"""
        if not len(self._kinds):
            return np.zeros((self.resamples, len(self._names)))
        generator = np.random.default_rng(self.seed)
        few = self._counts <= (_FEW if len(self._kinds) > _MANY else 0)
        single = np.repeat(self._kinds[few], self._counts[few], axis=0)  # a row a cluster
        joined, counts = self._kinds[~few], self._counts[~few].astype(np.float64)
        chunk = max(1, _WEIGHTS // (len(single) + len(joined)))
        pieces = []
        for start in range(0, self.resamples, chunk):
            rows = min(chunk, self.resamples - start)
            piece = generator.standard_gamma(counts, size=(rows, len(joined))) @ joined
            if len(single):
                piece += generator.standard_exponential((rows, len(single))) @ single
            pieces.append(piece)
        sums: Floats = np.concatenate(pieces)
        return sums

    def _tail(self, statistic: Statistic, tail: float) -> float:
        """Where to cut, so that a spread that had to be estimated from few clusters is not taken for known."""
        if len(statistic.shares) == 1:  # a share by itself: its spread follows from its value
            return tail
        return float(ndtr(stdtrit(self._freedom(statistic), tail)))

    def _inverse_tail(self, statistic: Statistic, cut: float) -> float:
        return cut if len(statistic.shares) == 1 else float(stdtr(self._freedom(statistic), ndtri(cut)))

    def _freedom(self, statistic: Statistic) -> float:
        """On how many clusters the spread rests, less one. Large clusters among small ones make it rest on few."""
        freedom: float = min(self.clusters[whole] for whole in statistic.wholes) - 1
        if any(self._sizes[whole] > 1 for whole in statistic.wholes):
            pulls = self._pulls(statistic) ** 2 * self._counts
            squares, estimated = float((pulls**2 / self._counts).sum()), float(pulls.sum())
            if squares > 0:  # Satterthwaite's: as many as would leave a variance of normal numbers this uncertain
                kurtosis = self._counts.sum() * squares / estimated**2
                own = 2 * float(self._counts.sum()) / max(kurtosis - 1, 1e-9)
                # What the made-up images add to the spread is known. Where they are most of it, as when one cluster alone
                # shows an outcome, nothing much rests on that cluster.
                added = max(float(self.values(statistic).var()) / estimated, 1.0) if statistic.shares else 1.0
                freedom = min(freedom, own * added**2)
        return max(freedom, 1.0)

    def _pulls(self, statistic: Statistic) -> Floats:
        """How far a little more of each kind of cluster pulls the value.  # (kinds,)"""
        little = 1e-6
        more = Sums({name: self.observed[name] + little * self._kinds[:, place] for place, name in enumerate(self._names)})
        pulls: Floats = (statistic.of(more) - statistic.of(self.observed)) / little
        return pulls

    def _pads(self, statistic: Statistic) -> dict[Share | Mean, Pad]:
        if not statistic.shares:
            return {}
        each = 1 / (1 + math.log2(len(statistic.shares)))
        return {share: self._pad(share, each) for share in statistic.shares}

    def _pad(self, share: Share | Mean, each: float) -> Pad:
        """Seeded by the share's name: a statistic's interval does not depend on which others are asked for."""
        if (share, each) not in self._padding:
            name = crc32(f"{share.part}/{share.whole}/{each}".encode())
            images = np.random.default_rng((*self.seed, name)).standard_gamma(each, size=(2, self.resamples))
            self._padding[share, each] = Pad(*(images * self._sizes[share.whole]))
        return self._padding[share, each]


def _named(names: list[str], sums: Floats) -> dict[str, Floats]:
    return {name: sums[:, index] for index, name in enumerate(names)}


def _summed(values: Floats, clusters: NDArray[Any]) -> Floats:
    """One row a cluster, in the order of the clusters' numbers."""
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.zeros((int(places.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(sums, places, values)
    return sums


def _sizes(values: Floats) -> Floats:
    """The size of a cluster in each column, averaged over rows rather than over clusters; 1 where there is nothing."""
    total = values.sum(axis=0)
    sizes: Floats = np.divide((values**2).sum(axis=0), total, out=np.ones_like(total), where=total > 0)
    return sizes


def _kinds(values: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The rows that differ, sorted, and how often each occurs. Several times as fast as numpy's own on rows."""
    ordered = values[np.lexsort(values.T[::-1])]
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.flatnonzero(first)
    return ordered[places], np.diff(np.append(places, len(ordered)))
