"""The Fréchet distance between two sets of features, as in FID when the features are Inception's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Moments:
    """Mean and covariance of features, taken in one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self._sum: NDArray[np.float64] | None = None
        self._products: NDArray[np.float64] | None = None

    def add(self, features: NDArray[Any]) -> None:
        """Take in one row.  # (D,)"""
        row = np.asarray(features, dtype=np.float64)
        if self._sum is None or self._products is None:
            self._sum, self._products = np.zeros_like(row), np.zeros((len(row), len(row)))
        self.count += 1
        self._sum += row
        self._products += np.outer(row, row)

    def mean(self) -> NDArray[np.float64]:
        """The mean of the rows.  # (D,)"""
        assert self._sum is not None
        return self._sum / self.count

    def covariance(self) -> NDArray[np.float64]:
        """Their covariance, over one less than their number.  # (D, D)"""
        assert self._products is not None
        mean = self.mean()
        covariance: NDArray[np.float64] = (self._products - self.count * np.outer(mean, mean)) / (self.count - 1)
        return covariance


def frechet(one: Moments, two: Moments) -> tuple[float | None, str]:
    """|m₁ − m₂|² + tr(C₁ + C₂ − 2 (C₁ C₂)^½), and what to know about it."""
    if min(one.count, two.count) < 2:
        return None, f"too few pictures: {one.count} and {two.count}"
    first, second = one.covariance(), two.covariance()
    # The root's trace is the sum of the roots of C₁ C₂'s eigenvalues, which are those of C₁^½ C₂ C₁^½.
    values, vectors = np.linalg.eigh(first)
    half = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(half @ second @ half), 0, None)).sum()
    apart = one.mean() - two.mean()
    distance = float(apart @ apart + np.trace(first) + np.trace(second) - 2 * shared)
    dimensions, fewest = len(apart), min(one.count, two.count)
    note = f"{fewest} pictures for {dimensions} features: biased upwards" if fewest <= dimensions else ""
    return max(distance, 0.0), note
