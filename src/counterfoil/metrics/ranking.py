"""Orders of models: Kendall's tau between two of them, and the ranks that a model may have.

Models that cannot be told apart have no order, so a tau between two lists of measured values is only one of many that the
images allow. Its interval is made of what the images do show: every two models are compared in both orders, corrected for
the number of pairs; those told apart in both orders count as agreeing or not, and the others as open, once for and once
against. That is cautious: it holds the true value in more than 95 of 100 cases. (Tau over resamples of the images is no
interval to trust: between models of about equal strength it leaves out the true value one time in five, since each
resample shuffles both orders anew.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.estimate import LEVEL, Estimate
from counterfoil.metrics.resample import Resamples
from counterfoil.metrics.statistic import Difference, Floats, Statistic


def kendall(one: Floats, two: Floats) -> Floats:
    """Kendall's tau-b of two score lists, for many at once; NaN where one of them holds a single value throughout.

    The last axis is the models: (…, models) twice → (…).
    """
    first, second = np.triu_indices(one.shape[-1], k=1)
    order_one = np.sign(one[..., first] - one[..., second])
    order_two = np.sign(two[..., first] - two[..., second])
    spread = np.sqrt(np.count_nonzero(order_one, axis=-1) * np.count_nonzero(order_two, axis=-1))
    agreeing = (order_one * order_two).sum(axis=-1)
    tau: Floats = np.divide(agreeing, spread, out=np.full(agreeing.shape, np.nan), where=spread > 0)
    return tau


def agreement(
    drawn: Resamples, one: Sequence[Statistic], two: Sequence[Statistic], *, opposed: bool = False, level: float = LEVEL
) -> Estimate:
    """Tau between two orders of the same models, one statistic a model in each; `opposed` if less is better in just one."""
    undefined = [each.undefined(drawn.observed) for each in (*one, *two)]
    if len(one) < 2:
        return Estimate(None, None, None, len(one), "an order needs two models")
    if any(undefined):
        return Estimate(None, None, None, len(one), next(filter(None, undefined)))
    sign = -1 if opposed else 1
    observed = (np.stack([each.of(drawn.observed) for each in side], axis=-1) for side in (one, two))
    value = sign * float(kendall(*observed)[0])
    if np.isnan(value):
        return Estimate(None, None, None, len(one), "all models have the same value, so there is no order")
    signs = _told_apart(drawn, [one, two], 1 - level)  # (2, pairs)
    agreeing = sign * signs[0] * signs[1]
    sure, open_pairs = int(agreeing.sum()), int(np.count_nonzero(agreeing == 0))
    low, high = (sure - open_pairs) / len(agreeing), (sure + open_pairs) / len(agreeing)
    return Estimate(value, min(low, value), max(high, value), len(one))


def _told_apart(drawn: Resamples, orders: Sequence[Sequence[Statistic]], alpha: float) -> NDArray[np.int64]:
    """For each two models in each order: 1 or -1 as the first is shown to be higher or lower, 0 if neither is."""
    differences = [[Difference(*pair) for pair in combinations(models, 2)] for models in orders]
    # Only the wrong way round is an error, which is half of a two-sided p-value; the tests are those of all orders.
    enough = 2 * alpha / (len(orders) * len(differences[0]))
    shown = [
        [int(np.sign(each.of(drawn.observed)[0])) if drawn.p_value(each) <= enough else 0 for each in order]
        for order in differences
    ]
    return np.array(shown, dtype=np.int64)


def rank_ranges(names: Sequence[str], beaten: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Best and worst rank of each model, from the pairs (better, worse) that could be told apart."""
    best, worst = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for better, worse in beaten:
        best[worse] += 1
        worst[better] -= 1
    return {name: (best[name], worst[name]) for name in names}
