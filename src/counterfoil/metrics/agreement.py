"""Agreement of several people on the same images: Krippendorff's alpha and the plain share of agreeing pairs.

Alpha is 1 − observed / expected disagreement (Krippendorff, Content Analysis, 4th edition, chapter 12), for answers without
an order. It is 1 where all agrees, 0 where they agree no more than drawing answers at random would, and it takes any
number of votes a image, those with a single vote being left out. With almost all saying yes alpha is low however
often people agree, because chance would do nearly as well: read both numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import RESAMPLES, Floats, exact_reach

Votes = Mapping[Hashable, Sequence[Hashable]]
"""The answers that each image got."""


@dataclass(frozen=True)
class Agreement:
    """Both numbers over the images that two people or more have judged."""

    alpha: Estimate  # −1 to 1
    raw: Estimate  # per cent of pairs of votes on one image that agree


def agreement(votes: Votes, *, seed: int = 0, resamples: int = RESAMPLES) -> Agreement:
    """Agreement on all images, with 95 % intervals from a bootstrap over images."""
    table, n = _table(votes)
    if not n:
        nothing = Estimate(None, None, None, 0, "no image has two votes")
        return Agreement(nothing, nothing)
    weights = np.random.default_rng(seed).standard_exponential((resamples, n))  # a Bayesian bootstrap over images
    observed = np.ones((1, n))
    raw = _share(_raw(table, observed), _raw(table, weights), n)
    if len(table[0]) < 2:
        return Agreement(Estimate(None, None, None, n, "all gave the same answer, which chance would too"), raw)
    return Agreement(_estimate(_alpha(table, observed), _alpha(table, weights), n), raw)


def _table(votes: Votes) -> tuple[Floats, int]:
    """Number of votes each image got for each answer, images with a single vote left out.  # (images, answers)"""
    counted = [Counter(answers) for answers in votes.values() if len(answers) > 1]
    answers = {answer: place for place, answer in enumerate(sorted({each for row in counted for each in row}, key=repr))}
    table = np.zeros((len(counted), len(answers)))
    for place, row in enumerate(counted):
        for answer, times in row.items():
            table[place, answers[answer]] = times
    return table, len(counted)


def _alpha(table: Floats, weights: Floats) -> Floats:
    """Alpha under each row of weights.  # (images, answers), (resamples, images) → (resamples,)"""
    each = table.sum(axis=1)  # votes a image
    apart = (each**2 - (table**2).sum(axis=1)) / (each - 1)  # disagreeing pairs, by the rule a vote counts once
    observed = weights @ apart
    totals = weights @ table  # (resamples, answers)
    whole = weights @ each
    expected = (whole**2 - (totals**2).sum(axis=1)) / np.maximum(whole - 1, 1e-12)
    alpha: Floats = 1 - np.divide(observed, expected, out=np.zeros_like(observed), where=expected > 1e-12)
    return alpha


def _raw(table: Floats, weights: Floats) -> Floats:
    """The share of pairs of votes on one image that agree.  # (resamples,)"""
    each = table.sum(axis=1)
    pairs = each * (each - 1)
    share: Floats = (weights @ ((table**2).sum(axis=1) - each)) / (weights @ pairs)
    return share


def _share(value: Floats, resampled: Floats, n: int) -> Estimate:
    """In per cent; what all images have in common may yet fail on others."""
    found = _estimate(100 * value, 100 * resampled, n)
    if found.low is None or found.value not in (0, 100):
        return found
    return Estimate(found.value, max(0.0, found.value - exact_reach(n)), min(100.0, found.value + exact_reach(n)), n)


def _estimate(value: Floats, resampled: Floats, n: int) -> Estimate:
    middle = float(value[0])
    if n == 1:
        return Estimate(middle, None, None, n, "no interval from one image alone")
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    note = "all images alike, so the interval has no width" if abs(high - low) < 1e-12 else ""
    return Estimate(middle, min(round(low, 9), middle), max(round(high, 9), middle), n, note)
