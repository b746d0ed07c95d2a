"""Random patterns that are a function of a row's seed: the same on every device, in every batch, each time they are asked for.

No generator state is kept. Every number is a hash of the seed, the purpose and its place in the pattern, so a state only
has to hold the seed, and pictures of patterns are made again when they are needed.
"""

from __future__ import annotations

import math
import zlib

import torch
import torch.nn.functional as F
from torch import Tensor

_WORD = 0xFFFFFFFF


def _mix(value: Tensor) -> Tensor:
    """Spreads every bit of a 32-bit number held in int64 over all others; no product reaches 2^63."""
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _WORD
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _WORD
    return value ^ (value >> 16)


def uniform(seeds: Tensor, purpose: str, *shape: int) -> Tensor:
    """Numbers in (0, 1), one pattern a seed.  # (N,) int64 → (N, *shape)"""
    key = _mix((seeds & _WORD) ^ zlib.crc32(purpose.encode()))
    key = _mix(key ^ ((seeds >> 32) & _WORD))  # (N,)
    places = _mix(torch.arange(1, math.prod(shape) + 1, device=seeds.device))
    words = _mix(key[:, None] ^ places)  # (N, places)
    return fractions(words).reshape(len(seeds), *shape)


def fractions(words: Tensor) -> Tensor:
    """32-bit numbers as fractions that are neither 0 nor 1, so that logarithms and inverse distributions are finite."""
    # Half a unit more than the largest of 24 bits is rounded up to 1 in float32.
    return (((words >> 8).float() + 0.5) * 2.0**-24).clamp(max=1 - 2.0**-24)


def normal(seeds: Tensor, purpose: str, *shape: int) -> Tensor:
    """Standard normal numbers, one pattern a seed.  # (N,) int64 → (N, *shape)"""
    return torch.erfinv(uniform(seeds, purpose, *shape) * 2 - 1) * math.sqrt(2)


def between(seeds: Tensor, purpose: str, low: float, high: float) -> Tensor:
    """One number a seed, shaped to broadcast over pictures.  # (N,) int64 → (N, 1, 1, 1)"""
    return low + (high - low) * uniform(seeds, purpose, 1, 1, 1)


def sign(seeds: Tensor, purpose: str) -> Tensor:
    """-1 or 1 a seed, shaped to broadcast over pictures.  # (N,) int64 → (N, 1, 1, 1)"""
    return torch.where(uniform(seeds, purpose, 1, 1, 1) < 0.5, -1.0, 1.0)


def smooth(seeds: Tensor, purpose: str, *, knots: int, size: tuple[int, int], channels: int = 1) -> Tensor:
    """Smooth noise about 0, roughly within ±1: a coarse random grid, interpolated.  # → (N, channels, *size)"""
    grid = uniform(seeds, purpose, channels, knots, knots) * 2 - 1
    return F.interpolate(grid, size=size, mode="bicubic", align_corners=True)


def plasma(seeds: Tensor, purpose: str, *, size: tuple[int, int], octaves: int = 6, decay: float = 0.6) -> Tensor:
    """Cloudy noise in [0, 1]: smooth noise of ever finer grain and smaller weight.  # → (N, 1, *size)"""
    layers = [
        decay**octave * smooth(seeds, f"{purpose} {octave}", knots=min(2 ** (octave + 1) + 1, *size), size=size)
        for octave in range(octaves)
    ]
    total = torch.stack(layers).sum(0)
    low, high = total.amin((1, 2, 3), keepdim=True), total.amax((1, 2, 3), keepdim=True)
    return (total - low) / (high - low)
