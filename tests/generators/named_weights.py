"""Weights that follow from their names alone, so that two programs can have the same ones without a file between them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from counterfoil.parts.generators import patterns


def named_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the same names and shapes as `state`, of a size at which signals neither die nor explode."""
    return {name: _values(name, tuple(tensor.shape)) for name, tensor in state.items()}


def _values(name: str, shape: tuple[int, ...]) -> Tensor:
    spread = patterns.uniform(torch.zeros(1, dtype=torch.long), name, *shape)[0] * 2 - 1
    if len(shape) == 1:  # a bias, or the factors of a normalisation
        return 0.1 * spread + (1.0 if name.endswith("weight") else 0.0)
    if "embed" in name and name.endswith(("embedding.weight", "embed.weight")):  # codes: as wide apart as latents are
        return spread
    return spread * math.sqrt(3 / math.prod(shape[1:]))


def named_pictures(count: int, side: int, *, name: str = "pictures") -> Tensor:
    """Pictures in [0, 1] that follow from their name.  # → (N, 3, side, side)"""
    return (patterns.smooth(torch.arange(count), name, knots=5, size=(side, side), channels=3) / 2 + 0.5).clamp(0, 1)
