"""Estimates with intervals, from a bootstrap clustered by source image.

A statistic is a function of sums over clusters, and all statistics of one call see the same resamples: the interval of a
ratio is that of the ratio, its two sides drawn together. docs/concepts/statistics.md says how often the intervals hold the truth.

Resampling is a Bayesian bootstrap (Rubin 1981): instead of being drawn a whole number of times, each cluster gets a random
exponential weight. Clusters with equal rows get their weights together, as one gamma variate, which is the same thing and
makes 50,000 images cost as little as the few dozen kinds of them.

A bootstrap knows nothing of outcomes that did not occur. Each share is therefore padded with made-up images, right and
wrong in equal parts: one of each for a share by itself, half of each for both shares of a ratio, a third of each for the
four in a difference of ratios, where more would drown what the images themselves show. A mean of numbers that cannot exceed
a known one is padded with that number for its upper bound and with zero for its lower one. A made-up image weighs as much as
a cluster would if its rows always agreed: the sum of squared cluster sizes over the sum of sizes. With one row per cluster, a
padded share is distributed as Beta(right + 1, wrong + 1). Ratios and differences are cut by Student's t rather than the
normal curve, as their spread has to be estimated.

An interval always holds its value. A share of 0 or 100 % has the exact (Clopper-Pearson) bound, 100 × (1 − (α/2)^(1/n)) away
from its value, and a ratio whose upper share is 0 or 100 % reaches at least as far. A ratio is no surer than what it divides
by: with fewer than five source images on either side, or fewer than five that are right below, it has a value and, in place
of an interval, a note. So has a mean over a single cluster. So has a difference of which either is a part.

McNemar's exact test asks whether the images that only one of two models gets right split evenly between them. Several images
of one source are not independent: `sign_flip` exchanges the two models' answers for a whole source image at a time, a fair
coin under the hypothesis that it does not matter which model is which. With one image per source the two are the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaln, ndtr, ndtri, stdtr, stdtrit

from counterfoil.core.records import LEVEL, Estimate

RESAMPLES = 2000
FEWEST = 5  # source images that a ratio's interval takes: on either side, and right ones to divide by

Floats = NDArray[np.float64]
Seed = int | tuple[int, ...]

_WEIGHTS = 200_000  # drawn at a time: a few megabytes
_MANY, _FEW = 100, 4
"""Of so many kinds most have a cluster or two, and a gamma variate takes as long as this many exponential ones."""


class Pad(NamedTuple):
    """Made-up images that a share is resampled with, so that it allows for outcomes that did not occur."""

    right: Floats  # of a mean, images with the largest possible number
    wrong: Floats  # and with zero


@dataclass(frozen=True)
class Sums:
    """Sums by column, one entry per resample, and the pads; the observed sums are a single entry without pads."""

    columns: Mapping[str, Floats]
    pads: Mapping[Mean, Pad] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Floats:
        return self.columns[column]


class Statistic(ABC):
    """A function of sums over rows. Its methods are those of one that is made of others, `above` and `below`."""

    above: Statistic
    below: Statistic

    @abstractmethod
    def of(self, sums: Sums) -> Floats:
        """The value in each resample, NaN where undefined."""

    @property
    def parts(self) -> tuple[Statistic, ...]:
        """The statistics it is made of."""
        return self.above, self.below

    def count(self, sums: Sums) -> int:
        """The number of rows it averages over."""
        return min(each.count(sums) for each in self.parts)

    def reason(self, sums: Sums) -> str:
        """The reason why there is no value, or nothing."""
        return next(filter(None, (each.reason(sums) for each in self.parts)), "")

    def too_few(self, clusters: Mapping[str, int]) -> str:
        """The reason why there is no interval, or nothing, from the number of clusters with something in each column."""
        return next(filter(None, (each.too_few(clusters) for each in self.parts)), "")

    def rests_on(self, clusters: Mapping[str, int]) -> int:
        """The number of clusters that the spread rests on."""
        return min(each.rests_on(clusters) for each in self.parts)

    @property
    def terms(self) -> tuple[Mean, ...]:
        """The means and shares it is made of in the end."""
        return tuple(term for each in self.parts for term in each.terms)

    def with_prefix(self, prefix: str) -> Self:
        """The same of other columns, whose names begin with `prefix`."""
        return replace(self, above=self.above.with_prefix(prefix), below=self.below.with_prefix(prefix))  # type: ignore[type-var]


@dataclass(frozen=True)
class Mean(Statistic):
    """The sum of `part` over that of `whole`."""

    part: str
    whole: str
    empty: str = "no images"  # why it is undefined when `whole` is empty
    most: float | None = None  # the largest possible number, where that is known; none is below zero then

    scale: ClassVar[float] = 1.0

    def of(self, sums: Sums) -> Floats:
        part, whole = sums[self.part], sums[self.whole]
        if self.most is not None and (pad := sums.pads.get(self)):
            part, whole = part + self.most * pad.right, whole + pad.right + pad.wrong
        return self.scale * divide(part, whole)

    def count(self, sums: Sums) -> int:
        return int(sums[self.whole][0])

    def reason(self, sums: Sums) -> str:
        return self.empty if sums[self.whole][0] == 0 else ""

    def too_few(self, clusters: Mapping[str, int]) -> str:
        return "no interval from one source image or prompt alone" if clusters[self.whole] == 1 else ""

    def rests_on(self, clusters: Mapping[str, int]) -> int:
        return clusters[self.whole]

    @property
    def terms(self) -> tuple[Mean, ...]:
        return (self,)

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, part=prefix + self.part, whole=prefix + self.whole)


@dataclass(frozen=True)
class Share(Mean):
    """The sum of `part` as a percentage of that of `whole`; both are columns of zeros and ones."""

    most: float | None = 1.0

    scale: ClassVar[float] = 100.0

    def too_few(self, clusters: Mapping[str, int]) -> str:
        return ""  # it knows what it could have been


@dataclass(frozen=True)
class Ratio(Statistic):
    """The share `above` as a percentage of the share `below`."""

    above: Share
    below: Share
    zero: str = "nothing to divide by"  # why it is undefined when `below` is 0

    def of(self, sums: Sums) -> Floats:
        return 100 * divide(self.above.of(sums), self.below.of(sums))

    def count(self, sums: Sums) -> int:
        return self.above.count(sums)

    def reason(self, sums: Sums) -> str:
        return super().reason(sums) or (self.zero if self.below.of(sums)[0] == 0 else "")

    def too_few(self, clusters: Mapping[str, int]) -> str:
        return few_to_divide_by(self.rests_on(clusters), clusters[self.below.part])


@dataclass(frozen=True)
class Difference(Statistic):
    """The excess of `above` over `below`, in their unit: an accuracy drop, or one model less another."""

    above: Statistic
    below: Statistic

    def of(self, sums: Sums) -> Floats:
        return self.above.of(sums) - self.below.of(sums)


def estimate(
    columns: Mapping[str, NDArray[Any]],
    statistics: Mapping[str, Statistic],
    *,
    seed: Seed = 0,
    clusters: NDArray[Any] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Estimate]:
    """Estimate all `statistics` from the same resamples of `columns`.

    Rows of one source image share a number in `clusters` and are drawn together; without it every row is its own.
    """
    drawn = Resamples(columns, clusters=clusters, seed=seed, resamples=resamples)
    return {name: estimate_one(drawn, each, level=level) for name, each in statistics.items()}


def estimate_one(drawn: Resamples, statistic: Statistic, *, level: float = LEVEL) -> Estimate:
    """Estimate one statistic from resamples that are there."""
    n = statistic.count(drawn.observed)
    if reason := statistic.reason(drawn.observed):
        return Estimate(None, None, None, n, reason)
    value = float(statistic.of(drawn.observed)[0])
    if few := statistic.too_few(drawn.clusters):
        return Estimate(value, None, None, n, few)
    low, high = drawn.interval(statistic, 1 - level)
    low, high = min(_round(low, value), value), max(_round(high, value), value)
    note = "all images alike, so the interval has no width" if low == high else ""
    return Estimate(value, low, high, n, note)


def median(values: Floats, empty: str, *, level: float = LEVEL) -> Estimate:
    """The median of a number per image, between the order statistics that hold it at least so often for any distribution."""
    n = len(values)
    if not n:
        return Estimate(None, None, None, 0, empty)
    ordered, middle = np.sort(values), float(np.median(values))
    cut = int(np.count_nonzero(bdtr(np.arange(n // 2), n, 0.5) <= (1 - level) / 2))
    if not cut:
        return Estimate(middle, None, None, n, f"too few images for an interval, {n} where 6 are needed")
    return Estimate(middle, float(ordered[cut - 1]), float(ordered[n - cut]), n)


def few_to_divide_by(images: int, right: int) -> str:
    """The reason why a ratio over so many images, of which so many are right below, has no interval, or nothing."""
    if images < FEWEST:
        return f"too few images for an interval, {images} where {FEWEST} are needed"
    if right < FEWEST:
        return f"too few images for an interval, {right} right ones to divide by where {FEWEST} are needed"
    return ""


def exact_reach(n: int, alpha: float = 1 - LEVEL) -> float:
    """Give the distance that a share of `n` may lie from 0 or 100 % if it is one of these (Clopper and Pearson)."""
    return float(100 * (1 - (alpha / 2) ** (1 / n)))


class Resamples:
    """The same resamples for any number of statistics over the same rows."""

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        clusters: NDArray[Any] | None = None,
        counts: NDArray[Any] | None = None,
        seed: Seed = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        """Rows of one source image share a number in `clusters` and are drawn together; without it every row is its own.

        With `counts`, each row stands for so many equal ones.
        """
        names = list(columns)
        values = np.stack([np.asarray(columns[name], dtype=np.float64) for name in names], axis=1)  # (rows, columns)
        if clusters is not None:
            values = _sum_clusters(values, clusters)
        self.seed = seed if isinstance(seed, tuple) else (seed,)
        self.resamples = resamples
        self._names = names
        if counts is None:
            self._kinds, self._counts = _kinds(values)
        else:
            self._kinds, self._counts = values[counts > 0], counts[counts > 0].astype(np.intp)
        total, squares, present = (
            (each.sum(axis=0) if counts is None else counts @ each) for each in (values, values**2, (values != 0).astype(np.intp))
        )
        self.observed = Sums(_by_name(names, total[None, :]))
        self.clusters: dict[str, int] = dict(zip(names, present.tolist(), strict=True))
        """The number of clusters that have something in each column."""
        self._sizes: dict[str, float] = dict(zip(names, _sizes(squares, total).tolist(), strict=True))
        self._padding: dict[tuple[Mean, float], Pad] = {}
        self._drawn = _by_name(names, self._weighted_sums())

    def values(self, statistic: Statistic) -> Floats:
        """The statistic in each resample.  # (resamples,)"""
        return statistic.of(Sums(self._drawn, self._pads(statistic)))

    def interval(self, statistic: Statistic, alpha: float) -> tuple[float, float]:
        """The bounds that leave out `alpha / 2` on either side; exact ones for a share of 0 or 100 %."""
        tail = self._tail(statistic, alpha / 2)
        pads = self._pads(statistic)
        lower = upper = pads
        if isinstance(statistic, Mean) and not isinstance(statistic, Share):
            lower = {term: Pad(0 * pad.right, pad.wrong) for term, pad in pads.items()}
            upper = {term: Pad(pad.right, 0 * pad.wrong) for term, pad in pads.items()}
        low = float(np.quantile(statistic.of(Sums(self._drawn, lower)), tail))
        high = float(np.quantile(statistic.of(Sums(self._drawn, upper)), 1 - tail))
        if isinstance(statistic, Share) and (exact := self._exact(statistic, alpha)):
            alone = self._sizes[statistic.whole] == 1  # one row per cluster: the exact bounds need no help
            return exact if alone else (min(low, exact[0]), max(high, exact[1]))
        if isinstance(statistic, Ratio) and (exact := self._exact(statistic.above, alpha)):
            below = float(statistic.below.of(self.observed)[0])
            return min(low, 100 * exact[0] / below), max(high, 100 * exact[1] / below)
        return low, high

    def p_value(self, statistic: Statistic) -> float:
        """Two-sided, that it is zero: the smallest `alpha` whose interval leaves zero out.

        Where no resample lies beyond zero they cannot tell how small it is, and the normal curve does.
        """
        values = self.values(statistic)
        beyond = min(int(np.count_nonzero(values <= 0)), int(np.count_nonzero(values >= 0)))
        tail = max(beyond, 1) / (len(values) + 1)
        if not beyond and (spread := float(values.std())) > 0:
            tail = min(tail, max(float(ndtr(-abs(float(values.mean())) / spread)), 1e-12))
        cut = tail if len(self._terms_to_pad(statistic)) == 1 else float(stdtr(self._freedom(statistic), ndtri(tail)))
        return float(min(1.0, 2 * cut))

    def _exact(self, share: Share, alpha: float) -> tuple[float, float] | None:
        """Clopper and Pearson's bounds of a share without variation."""
        value = float(share.of(self.observed)[0])
        if value not in (0, 100):
            return None
        reach = exact_reach(self.clusters[share.whole], alpha)
        return (100 - reach, 100.0) if value else (0.0, reach)

    def _weighted_sums(self) -> Floats:
        """Sums over the clusters under random weights.  # (resamples, columns)"""
        if not len(self._kinds):
            return np.zeros((self.resamples, len(self._names)))
        generator = np.random.default_rng(self.seed)
        few = self._counts <= (_FEW if len(self._kinds) > _MANY else 0)
        single = np.repeat(self._kinds[few], self._counts[few], axis=0)  # a row per cluster
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
        """The share to cut off at a side, so that a spread that had to be estimated from few clusters is not taken for known."""
        if len(self._terms_to_pad(statistic)) == 1:  # a share by itself: its spread follows from its value
            return tail
        return float(ndtr(stdtrit(self._freedom(statistic), tail)))

    def _freedom(self, statistic: Statistic) -> float:
        """The number of clusters the spread rests on, less one. Large clusters among small ones make it rest on few."""
        freedom: float = statistic.rests_on(self.clusters) - 1
        if any(self._sizes[term.whole] > 1 for term in statistic.terms):
            pulls = self._pulls(statistic) ** 2 * self._counts
            squares, estimated = float((pulls**2 / self._counts).sum()), float(pulls.sum())
            if squares > 0:  # Satterthwaite's: as many as would leave a variance of normal numbers this uncertain
                kurtosis = self._counts.sum() * squares / estimated**2
                own = 2 * float(self._counts.sum()) / max(kurtosis - 1, 1e-9)
                # What the made-up images add to the spread is known. Where they are most of it, as when one cluster alone
                # shows an outcome, nothing much rests on that cluster.
                padded = bool(self._terms_to_pad(statistic))
                added = max(float(self.values(statistic).var()) / estimated, 1.0) if padded else 1.0
                freedom = min(freedom, own * added**2)
        return max(freedom, 1.0)

    def _pulls(self, statistic: Statistic) -> Floats:
        """The derivative of the value by the count of each kind of cluster.  # (kinds,)"""
        little = 1e-6
        more = Sums({name: self.observed[name] + little * self._kinds[:, place] for place, name in enumerate(self._names)})
        pulls: Floats = (statistic.of(more) - statistic.of(self.observed)) / little
        return pulls

    def _terms_to_pad(self, statistic: Statistic) -> list[Mean]:
        """The terms whose largest possible number is known."""
        return [term for term in statistic.terms if term.most is not None]

    def _pads(self, statistic: Statistic) -> dict[Mean, Pad]:
        padded = self._terms_to_pad(statistic)
        each = 1 / (1 + math.log2(len(padded))) if padded else 0.0
        return {term: self._pad(term, each) for term in padded}

    def _pad(self, term: Mean, each: float) -> Pad:
        """Seeded by the term's name: a statistic's interval does not depend on which others are asked for."""
        if (term, each) not in self._padding:
            name = crc32(f"{term.part}/{term.whole}/{each}".encode())
            images = np.random.default_rng((*self.seed, name)).standard_gamma(each, size=(2, self.resamples))
            self._padding[term, each] = Pad(*(images * self._sizes[term.whole]))
        return self._padding[term, each]


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value for two models, from the numbers of images that only the one and only the other gets right."""
    return sign_flip(np.repeat([1, -1], [only_first, only_second]))


def sign_flip(differences: NDArray[Any]) -> float:
    """Exact two-sided p-value that a sum of whole-number differences, one per source image, is zero but for chance."""
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    if not len(sizes):
        return 1.0
    chances = np.ones(1)  # of the sum being -reach, …, +reach
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        spread = np.zeros(2 * int(size) * count + 1)
        spread[:: 2 * int(size)] = _fair_coins(count)
        chances = np.convolve(chances, spread)
    reach = len(chances) // 2
    far = abs(int(differences.sum()))
    tail = float(chances[reach + far :].sum())
    return min(1.0, 2 * tail if far else 1.0)


def holm(p_values: Sequence[float], *, among: int | None = None) -> list[float]:
    """Adjust p-values by Holm's method, so that all of them can be read at the level of one.

    They are the smallest of `among` tests, where the others are known to show nothing and are not listed.
    """
    adjusted = [1.0] * len(p_values)
    tests, highest = len(p_values) if among is None else among, 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (tests - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def stored_p(p: float) -> float:
    """A p-value as results hold it, to six decimals: never 0."""
    return max(p, 1e-6)


def divide(above: Floats, below: Floats) -> Floats:
    """Divide, NaN where the divisor is zero."""
    quotient: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return quotient


def _round(bound: float, value: float) -> float:
    """Without the digits that depend on a machine's arithmetic, so that the same run gives the same bytes elsewhere."""
    return value if abs(bound - value) < 1e-9 else round(bound, 9)


def _by_name(names: list[str], sums: Floats) -> dict[str, Floats]:
    return {name: sums[:, index] for index, name in enumerate(names)}


def _sum_clusters(values: Floats, clusters: NDArray[Any]) -> Floats:
    """One row per cluster, in the order of the clusters' numbers."""
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.zeros((int(places.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(sums, places, values)
    return sums


def _sizes(squares: Floats, total: Floats) -> Floats:
    """The size of a cluster in each column, averaged over rows rather than over clusters; 1 where there is nothing."""
    sizes: Floats = np.divide(squares, total, out=np.ones_like(total), where=total > 0)
    return sizes


def _kinds(values: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The rows that differ, sorted, and how often each occurs. Several times as fast as numpy's own on rows."""
    ordered = values[np.lexsort(values.T[::-1])]
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.flatnonzero(first)
    return ordered[places], np.diff(np.append(places, len(ordered)))


def _fair_coins(count: int) -> Floats:
    """Chances of 0, 1, …, `count` heads."""
    heads = np.arange(count + 1)
    chances: Floats = np.exp(gammaln(count + 1) - gammaln(heads + 1) - gammaln(count - heads + 1) - count * np.log(2))
    return chances
