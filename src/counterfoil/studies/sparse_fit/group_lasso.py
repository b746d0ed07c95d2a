"""Multinomial logistic regression whose weights are zero for whole groups of features, by accelerated proximal gradient.

The penalty is the sum over groups of the Euclidean length of their weights (Yuan and Lin, 2006; Meier, van de Geer and Bühlmann,
2008, for logistic regression), so a group has weights in every class or in none. scikit-learn has no such penalty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Weights:
    """A fitted regression."""

    weight: Tensor  # (G, F, K): groups, features in each, classes
    bias: Tensor  # (K,)

    @property
    def lengths(self) -> Tensor:
        """How much each group counts; zero for those that are left out.  # (G,)"""
        return self.weight.square().sum((1, 2)).sqrt()

    def predict(self, rows: Tensor) -> Tensor:
        """The most probable class of every row.  # (n, G, F) → (n,)"""
        return (rows.flatten(1) @ self.weight.flatten(0, 1) + self.bias).argmax(1)


def weakest_for_nothing(rows: Tensor, labels: Tensor, classes: int) -> float:
    """The smallest penalty under which no group is kept.  # rows: (n, G, F)"""
    wanted = torch.nn.functional.one_hot(labels, classes).to(rows.dtype)
    slope = rows.flatten(1).T @ (wanted - wanted.mean(0)) / len(rows)  # (G·F, K), at weights of zero
    return float(slope.reshape(rows.shape[1], -1).norm(dim=1).max())


def fit(
    rows: Tensor, labels: Tensor, classes: int, *, penalty: float, start: Weights | None = None, iterations: int = 100
) -> Weights:
    """The regression under a penalty on the mean loss, from `start` on where one is given.  # rows: (n, G, F)"""
    count, groups, features = rows.shape
    flat = rows.flatten(1)
    wanted = torch.nn.functional.one_hot(labels, classes).to(rows.dtype)
    pace = 1 / (0.5 * _largest(flat) + 0.5)  # one over the Lipschitz constant of the loss's gradient, bias included
    weight = torch.zeros(groups * features, classes, dtype=rows.dtype) if start is None else start.weight.flatten(0, 1)
    bias = torch.zeros(classes, dtype=rows.dtype) if start is None else start.bias
    ahead, ahead_bias, speed = weight, bias, 1.0
    for _ in range(iterations):
        wrong = (flat @ ahead + ahead_bias).softmax(1) - wanted  # (n, K)
        moved = _shrink(ahead - pace * (flat.T @ wrong) / count, pace * penalty, groups)
        moved_bias = ahead_bias - pace * wrong.mean(0)
        faster = (1 + (1 + 4 * speed**2) ** 0.5) / 2
        momentum = (speed - 1) / faster
        if float(((ahead - moved) * (moved - weight)).sum()) > 0:  # gone too far: start the momentum again
            faster, momentum = 1.0, 0.0
        ahead, ahead_bias = moved + momentum * (moved - weight), moved_bias + momentum * (moved_bias - bias)
        weight, bias, speed = moved, moved_bias, faster
    return Weights(weight.reshape(groups, features, classes), bias)


def _shrink(weight: Tensor, by: float, groups: int) -> Tensor:
    """Every group's weights shorter by a constant, and zero where they were shorter than that."""
    grouped = weight.reshape(groups, -1)
    length = grouped.square().sum(1, keepdim=True).sqrt().clamp_min(torch.finfo(weight.dtype).tiny)
    return (grouped * (1 - by / length).clamp_min(0)).reshape(weight.shape)


def _largest(flat: Tensor, rounds: int = 30) -> float:
    """The largest eigenvalue of the features' second moments, by power iteration."""
    vector = torch.randn(flat.shape[1], dtype=flat.dtype, generator=torch.Generator().manual_seed(0))
    value = 0.0
    for _ in range(rounds):
        image = flat.T @ (flat @ vector) / len(flat)
        value = float(image.norm())
        vector = image / max(value, 1e-30)
    return 1.05 * value  # it comes up to the largest from below
