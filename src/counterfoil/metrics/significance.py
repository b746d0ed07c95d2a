"""Exact paired tests, Holm's correction, and orders of models as far as the images show them.

McNemar's exact test asks whether the images that only one of two models gets right split evenly between them. With several
images made of one source these are not independent; `sign_flip` then exchanges the two models' answers for a whole source
image at a time, a fair coin under the hypothesis that it does not matter which model is which. With one image per source
the two tests are the same.

Models that cannot be told apart have no order, so a tau between two lists of measured values is only one of many that the
images allow. Its interval is made of what the images do show: every two models are compared in both orders, corrected for
the number of pairs; those told apart in both orders count as agreeing or not, and the others as open, once for and once
against. That is cautious: it holds the true value in more than 95 of 100 cases. (Tau over resamples of the images leaves out
the true value one time in five between models of about equal strength, since each resample shuffles both orders again.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import Difference, Floats, Resamples, Statistic


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


def kendall(one: Sequence[float] | Floats, two: Sequence[float] | Floats) -> float:
    """Kendall's tau-b of two score lists; NaN where one of them holds a single value throughout."""
    signs = [(np.sign(one[i] - one[j]), np.sign(two[i] - two[j])) for i, j in combinations(range(len(one)), 2)]
    spread = math.sqrt(sum(first != 0 for first, _ in signs) * sum(second != 0 for _, second in signs))
    return float(sum(first * second for first, second in signs)) / spread if spread else math.nan


def order_agreement(
    drawn: Resamples, one: Sequence[Statistic], two: Sequence[Statistic], *, opposed: bool = False, level: float = LEVEL
) -> Estimate:
    """Tau between two orders of the same models, one statistic per model in each; `opposed` if less is better in just one.

    It is undefined where no two models can be told apart in both of them.
    """
    reasons = [each.reason(drawn.observed) for each in (*one, *two)]
    if len(one) < 2:
        return Estimate(None, None, None, len(one), "an order needs two models")
    if any(reasons):
        return Estimate(None, None, None, len(one), next(filter(None, reasons)))
    sign = -1 if opposed else 1
    values = ([float(each.of(drawn.observed)[0]) for each in side] for side in (one, two))
    tau = sign * kendall(*values)
    if math.isnan(tau):
        return Estimate(None, None, None, len(one), "all models have the same value, so there is no order")
    signs = _significance(drawn, [one, two], 1 - level)  # (2, pairs)
    agreeing = sign * signs[0] * signs[1]
    sure, undecided = int(agreeing.sum()), int(np.count_nonzero(agreeing == 0))
    if undecided == len(agreeing):
        return Estimate(None, None, None, len(one), "no two models can be told apart, so there is no order to compare")
    low, high = (sure - undecided) / len(agreeing), (sure + undecided) / len(agreeing)
    return Estimate(tau, min(low, tau), max(high, tau), len(one))


def rank_ranges(names: Sequence[str], beaten: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Best and worst rank of each model, from the pairs (better, worse) that could be told apart."""
    best, worst = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for better, worse in beaten:
        best[worse] += 1
        worst[better] -= 1
    return {name: (best[name], worst[name]) for name in names}


def _significance(drawn: Resamples, orders: Sequence[Sequence[Statistic]], alpha: float) -> NDArray[np.int64]:
    """For each two models in each order: 1 or -1 as the first is shown to be higher or lower, 0 if neither is."""
    differences = [[Difference(*pair) for pair in combinations(models, 2)] for models in orders]
    # Only the wrong way round is an error, which is half of a two-sided p-value; the tests are those of all orders.
    enough = 2 * alpha / (len(orders) * len(differences[0]))
    shown = [
        [int(np.sign(each.of(drawn.observed)[0])) if drawn.p_value(each) <= enough else 0 for each in order]
        for order in differences
    ]
    return np.array(shown, dtype=np.int64)


def _fair_coins(count: int) -> Floats:
    """Chances of 0, 1, …, `count` heads."""
    heads = np.arange(count + 1)
    chances: Floats = np.exp(gammaln(count + 1) - gammaln(heads + 1) - gammaln(count - heads + 1) - count * np.log(2))
    return chances
