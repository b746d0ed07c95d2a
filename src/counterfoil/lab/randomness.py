"""Counter-based random numbers in torch integers: the same value for the same (seed, purpose, counter) on any device.

A scene's details must not depend on the batch it is rendered in or on the device, so no generator state is kept: every number
is a hash of the scene's seed, a salt that names the purpose and a counter. All products stay below 2^63, so nothing overflows.
"""

from __future__ import annotations

import zlib
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

_MASK = 0xFFFFFFFF


def scramble(value: Tensor) -> Tensor:
    """A 32-bit mixing function on int64 tensors; every input bit reaches every output bit."""
    value = value & _MASK
    value = ((value ^ (value >> 16)) * 0x7FEB352D) & _MASK
    value = ((value ^ (value >> 15)) * 0x2C1B3C6D) & _MASK
    return value ^ (value >> 16)


def bits(seed: Tensor, purpose: str, count: int = 1) -> Tensor:
    """`count` 32-bit integers for each seed, drawn for a named purpose."""
    salt = zlib.crc32(purpose.encode())
    high = scramble((seed >> 32) ^ salt)
    start = scramble(seed ^ high)
    counter = torch.arange(1, count + 1, device=seed.device) * 0x3779B97F
    return scramble(start[:, None] + counter)  # (N, count)


def uniform(seed: Tensor, purpose: str, count: int = 1) -> Tensor:
    """`count` floats in [0, 1) for each seed; 24 bits, so exact in float32."""
    return (bits(seed, purpose, count) >> 8).to(torch.float32) * 2.0**-24  # (N, count)


def between(seed: Tensor, purpose: str, low: float, high: float) -> Tensor:
    """One float in [low, high) for each seed, shaped to broadcast over pictures."""
    return (low + (high - low) * uniform(seed, purpose))[:, :, None]  # (N, 1, 1)


def choice(seed: Tensor, purpose: str, options: int | Tensor) -> Tensor:
    """An index below `options` for each seed; `options` may differ by row."""
    return bits(seed, purpose)[:, 0] % options  # (N,)


def lattice(seed: Tensor, purpose: str, height: int, width: int) -> Tensor:
    """Independent uniform numbers on a grid, one grid a seed; 16 bits each, two from every hash."""
    count = height * width
    pairs = bits(seed, purpose, (count + 1) // 2)
    halves = torch.cat((pairs & 0xFFFF, pairs >> 16), dim=1)[:, :count]
    return (halves.to(torch.float32) * 2.0**-16).view(-1, height, width)


def smooth(seed: Tensor, purpose: str, height: int, width: int) -> Tensor:
    """Smooth noise about 0, roughly within ±1: a random grid of `height` by `width` knots, interpolated to 64x64."""
    knots = lattice(seed, purpose, height, width) * 2 - 1
    return stretched(knots, _spline(height, seed.device), _spline(width, seed.device))  # (N, 64, 64)


def stretched(fields: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Fields (N, h, w) resampled by weights (H, h) and (W, w) to (N, H, W), each picture the same whatever the batch."""
    # Products in float32 may be rounded to TF32 on CUDA, by a global setting; those in float64 never are.
    precision = torch.float64 if fields.is_cuda else torch.float32
    fields, down, across = fields.to(precision), down.to(precision), across.to(precision)
    rows = torch.bmm(fields, across.T.expand(len(fields), -1, -1))
    return torch.bmm(down.expand(len(fields), -1, -1), rows).to(torch.float32)


def line(seed: Tensor, purpose: str, knots: int) -> Tensor:
    """Smooth noise along one axis, roughly within ±1, (N, 1, 64)."""
    heights = lattice(seed, purpose, knots, 1) * 2 - 1
    return (heights * _spline(knots, seed.device).T).sum(1, keepdim=True)


@cache
def _spline(knots: int, device: torch.device) -> Tensor:
    """Weights that interpolate `knots` values to 64 along a cubic, (64, knots)."""
    unit = torch.eye(knots)[:, None, :, None]  # each knot in turn is 1
    drawn = F.interpolate(unit, size=(64, 1), mode="bicubic", align_corners=True)
    return drawn[:, 0, :, 0].T.contiguous().to(device)
