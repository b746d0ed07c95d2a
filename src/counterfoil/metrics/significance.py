"""Exact tests for paired answers, and what to do with many p-values.

McNemar's exact test asks whether the images that only one of two models gets right split evenly between them. With several
pictures a source image these are not independent; `sign_flip` then exchanges the two models' answers for a whole source
image at a time, which is a fair coin under the hypothesis that it does not matter which model is which. With one picture
a source image the two tests are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from counterfoil.metrics.statistic import Floats


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value for two models, from how many images only the one and only the other gets right."""
    return sign_flip(np.repeat([1, -1], [only_first, only_second]))


def sign_flip(differences: NDArray[Any]) -> float:
    """Exact two-sided p-value that a sum of whole-number differences, one a source image, is zero but for chance."""
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
    """Holm's adjustment: the p-values as they may be read when all of them are looked at.

    They are the smallest of `among` tests, where the others are known to show nothing and are not listed.
    """
    adjusted = [1.0] * len(p_values)
    tests, highest = len(p_values) if among is None else among, 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (tests - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _fair_coins(count: int) -> Floats:
    """Chances of 0, 1, …, `count` heads."""
    heads = np.arange(count + 1)
    chances: Floats = np.exp(gammaln(count + 1) - gammaln(heads + 1) - gammaln(count - heads + 1) - count * np.log(2))
    return chances
