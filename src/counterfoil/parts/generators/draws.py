"""Random numbers as a function of a row's seed: the same in every batch, at every call and, save for rounding, on every device.

No generator state is kept. Every number is a hash of the whole seed of 64 bits, the purpose and its place in the row. So a
state only has to hold the seed, patterns are made again when they are needed, and nothing is copied to a GPU but the seeds.
"""

from __future__ import annotations

import math
import zlib

import torch
import torch.nn.functional as F
from torch import Tensor

_WORD = 0xFFFFFFFF
_FACTOR = 0x45D9F3B


def _mix(value: Tensor) -> Tensor:
    """Spread every bit of a 32-bit number over all others; in int64, where no product overflows."""
    value = ((value ^ (value >> 16)) * _FACTOR) & _WORD
    value = ((value ^ (value >> 16)) * _FACTOR) & _WORD
    return value ^ (value >> 16)


def _mix_words(value: Tensor) -> Tensor:
    """The same on int32, whose products wrap around: half the memory traffic for whole patterns."""
    value = (value ^ ((value >> 16) & 0xFFFF)) * _FACTOR
    value = (value ^ ((value >> 16) & 0xFFFF)) * _FACTOR
    return value ^ ((value >> 16) & 0xFFFF)


def uniform(seeds: Tensor, purpose: str, *shape: int) -> Tensor:
    """Numbers in (0, 1), one pattern per seed.  # (N,) int64 → (N, *shape)"""
    low, high = seeds & _WORD, (seeds >> 32) & _WORD
    mark = zlib.crc32(purpose.encode())
    offset = _mix(_mix(low ^ mark) ^ high)  # (N,)
    factor = _mix(_mix(high ^ mark ^ _WORD) ^ low) | 1  # with the offset as many bits as the seed has
    places = _mix_words(torch.arange(1, math.prod(shape) + 1, device=seeds.device, dtype=torch.int32))
    words = _mix_words((places * factor.to(torch.int32)[:, None]) ^ offset.to(torch.int32)[:, None])  # (N, places)
    return fractions(words).reshape(len(seeds), *shape)


def fractions(words: Tensor) -> Tensor:
    """32-bit numbers as fractions that are neither 0 nor 1, so that logarithms and inverse distributions are finite."""
    # Half a unit more than the largest of 24 bits is rounded up to 1 in float32.
    return (((words >> 8) & 0xFFFFFF).float() + 0.5).mul_(2.0**-24).clamp_(max=1 - 2.0**-24)


def normal(seeds: Tensor, purpose: str, *shape: int) -> Tensor:
    """Standard normal numbers, one pattern per seed.  # (N,) int64 → (N, *shape)"""
    return torch.erfinv(uniform(seeds, purpose, *shape).mul_(2).sub_(1)).mul_(math.sqrt(2))


def between(seeds: Tensor, purpose: str, low: float, high: float) -> Tensor:
    """One number per seed, shaped to broadcast over images.  # (N,) int64 → (N, 1, 1, 1)"""
    return low + (high - low) * uniform(seeds, purpose, 1, 1, 1)


def sign(seeds: Tensor, purpose: str) -> Tensor:
    """-1 or 1 per seed, shaped to broadcast over images.  # (N,) int64 → (N, 1, 1, 1)"""
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
