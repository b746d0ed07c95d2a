"""Exact coverage of textbook intervals in the same cells, by adding up the chances of every outcome: what can be had at all.

With n images an accuracy takes n + 1 values, and a difference between paired answers hangs on the few images where they differ.
Where one or two such images are expected, the coverage of every interval moves in steps, and those that never fall short
cover too often. Nothing is simulated here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from scipy.stats import binom

ALPHA = 0.05
_Z = float(-ndtri(ALPHA / 2))

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]


def wilson(right: NDArray[np.int64], n: int) -> Bounds:
    """The score interval of a share (Wilson, 1927)."""
    share = right / n
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return middle - reach, middle + reach


def clopper_pearson(right: NDArray[np.int64], n: int) -> Bounds:
    """The exact interval of a share (Clopper and Pearson, 1934), which never covers less often than it says."""
    low = np.where(right > 0, betaincinv(np.maximum(right, 1), n - right + 1, ALPHA / 2), 0.0)
    high = np.where(right < n, betaincinv(right + 1, np.maximum(n - right, 1), 1 - ALPHA / 2), 1.0)
    return low, high


def share_coverage(truth: float, n: int, interval: Callable[[NDArray[np.int64], int], Bounds]) -> float:
    """How often the interval of a share of `n` images holds the truth, in per cent."""
    right = np.arange(n + 1)
    low, high = interval(right, n)
    return float(100 * binom.pmf(right, n, truth)[(low <= truth) & (truth <= high)].sum())


def tango_coverage(first: float, second: float, n: int) -> float:
    """How often the score interval of a paired difference (Tango, 1998) holds it, in per cent.

    `first` and `second` are the chances that only the one and only the other answer is right.
    """
    return _paired(first, second, n, lambda b, c: np.abs(_tango(b, c, n, first - second)) <= _Z)


def mcnemar_coverage(differ: float, n: int) -> float:
    """How often McNemar's exact test does not reject where both answers are equally good, in per cent.

    An interval that leaves out zero only where this test rejects holds the truth as often.
    """

    def holds(b: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = np.minimum(1.0, 2 * binom.cdf(np.minimum(b, c), b + c, 0.5)) > ALPHA
        return kept

    return _paired(differ / 2, differ / 2, n, holds)


def over_accepted(coverage: Callable[[int], float], images: int, accepted: float) -> float:
    """The mean over how many of the images the oracle may accept; none leaves nothing to cover."""
    counts = np.arange(1, images + 1)
    chances = binom.pmf(counts, images, accepted)
    likely = chances > 1e-9
    found = sum(chance * coverage(int(count)) for count, chance in zip(counts[likely], chances[likely], strict=True))
    return float(found / chances[likely].sum())


def _paired(first: float, second: float, n: int, holds: Callable[..., NDArray[np.bool_]]) -> float:
    b, c = _pairs(n)
    chances = binom.pmf(b, n, first) * binom.pmf(c, n - b, second / (1 - first))
    return float(100 * chances[holds(b, c)].sum())


@cache
def _pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every number of images that only the one and only the other answer is right about."""
    b, c = (each.ravel() for each in np.indices((n + 1, n + 1)))
    return b[b + c <= n], c[b + c <= n]


def _tango(b: NDArray[np.int64], c: NDArray[np.int64], n: int, difference: float) -> Floats:
    """Tango's score statistic that the paired difference is `difference`."""
    square, linear = 2.0 * n, -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    nuisance = (np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0)) - linear) / (2 * square)
    variance = n * (2 * nuisance + difference * (1 - difference))
    excess = b - c - n * difference
    score: Floats = np.divide(excess, np.sqrt(np.maximum(variance, 0)), out=np.zeros(len(b)), where=variance > 1e-12)
    return score
