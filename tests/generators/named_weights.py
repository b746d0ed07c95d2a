"""Weights and images that follow from their names alone, so that two programs have the same ones without a file between them.

The references of other authors' networks were made with these numbers; they must not change.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

_WORD = 0xFFFFFFFF


def named_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the same names and shapes as `state`, of a size at which signals neither die nor explode."""
    return {name: _values(name, tuple(tensor.shape)) for name, tensor in state.items()}


def _values(name: str, shape: tuple[int, ...]) -> Tensor:
    spread = uniform(1, name, *shape)[0] * 2 - 1
    if len(shape) == 1:  # a bias, or the factors of a normalisation
        return 0.1 * spread + (1.0 if name.endswith("weight") else 0.0)
    if "embed" in name and name.endswith(("embedding.weight", "embed.weight")):  # codes: as wide apart as latents are
        return spread
    return spread * math.sqrt(3 / math.prod(shape[1:]))


def named_pictures(count: int, side: int, *, name: str = "pictures") -> Tensor:
    """Images in [0, 1] that follow from their name.  # → (N, 3, side, side)"""
    grid = uniform(count, name, 3, 5, 5) * 2 - 1
    return (F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=True) / 2 + 0.5).clamp(0, 1)


def uniform(count: int, name: str, *shape: int) -> Tensor:
    """Numbers in (0, 1), a hash of the row's number, the name and the place.  # → (count, *shape)"""
    key = _mix(_mix(torch.arange(count) ^ zlib.crc32(name.encode())))  # (count,)
    words = _mix(key[:, None] ^ _mix(torch.arange(1, math.prod(shape) + 1)))
    return (((words >> 8).float() + 0.5) * 2.0**-24).clamp(max=1 - 2.0**-24).reshape(count, *shape)


def normal(count: int, name: str, *shape: int) -> Tensor:
    """Standard normal numbers likewise."""
    return torch.erfinv(uniform(count, name, *shape) * 2 - 1) * math.sqrt(2)


def _mix(value: Tensor) -> Tensor:
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _WORD
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _WORD
    return value ^ (value >> 16)
