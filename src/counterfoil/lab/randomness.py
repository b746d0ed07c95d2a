"""Counter-based random numbers in integers: the same value for the same (seed, purpose, counter) on any device.

A scene's details must not depend on the batch it is rendered in or on the device, so no generator state is kept: every number
is a hash of the scene's seed, a salt that names the purpose and a counter. On a CPU numpy computes it, whose unsigned 32-bit
integers wrap round by definition; elsewhere torch does in int64, where all products stay below 2^63 and nothing overflows.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[numpy.uint32]

_MASK = 0xFFFFFFFF
_FIRST, _SECOND = 0x7FEB352D, 0x2C1B3C6D  # multipliers of the mixing function
_STRIDE = 0x3779B97F  # between counters


def scramble(value: Tensor) -> Tensor:
    """A 32-bit mixing function on int64 tensors; every input bit reaches every output bit."""
    value = value & _MASK
    value = ((value ^ (value >> 16)) * _FIRST) & _MASK
    value = ((value ^ (value >> 15)) * _SECOND) & _MASK
    return value ^ (value >> 16)


def scramble_words(value: Words) -> Words:
    """The same function on numpy's 32-bit words, in place."""
    part = value >> numpy.uint32(16)
    value ^= part
    value *= numpy.uint32(_FIRST)
    numpy.right_shift(value, numpy.uint32(15), out=part)
    value ^= part
    value *= numpy.uint32(_SECOND)
    numpy.right_shift(value, numpy.uint32(16), out=part)
    value ^= part
    return value


def bits(seed: Tensor, purpose: str, count: int = 1) -> Tensor:
    """`count` 32-bit integers for each seed, drawn for a named purpose."""
    if seed.device.type == "cpu":
        return torch.from_numpy(words(seed, purpose, count).astype(numpy.int64))  # (N, count)
    return bits_in_torch(seed, purpose, count)


def bits_in_torch(seed: Tensor, purpose: str, count: int) -> Tensor:
    """What `bits` draws, computed on the seeds' own device."""
    high = scramble((seed >> 32) ^ _salt(purpose))
    start = scramble(seed ^ high)
    return scramble(start[:, None] + _counters(count, seed.device))  # (N, count)


def words(seed: Tensor, purpose: str, count: int) -> Words:
    """What `bits` draws for seeds on a CPU, (N, count)."""
    seeds = seed.numpy()
    high = scramble_words((seeds >> 32).astype(numpy.uint32) ^ numpy.uint32(_salt(purpose)))
    start = scramble_words(seeds.astype(numpy.uint32) ^ high)
    return scramble_words(start[:, None] + _word_counters(count))


@cache
def _salt(purpose: str) -> int:
    return zlib.crc32(purpose.encode())


@cache
def _counters(count: int, device: torch.device) -> Tensor:
    return torch.arange(1, count + 1, device=device) * _STRIDE


@cache
def _word_counters(count: int) -> Words:
    return numpy.arange(1, count + 1, dtype=numpy.uint32) * numpy.uint32(_STRIDE)


def uniform(seed: Tensor, purpose: str, count: int = 1) -> Tensor:
    """`count` floats in [0, 1) for each seed; 24 bits, so exact in float32."""
    if seed.device.type == "cpu":
        return torch.from_numpy(_fractions(seed, purpose, count))
    return (bits(seed, purpose, count) >> 8).to(torch.float32) * 2.0**-24  # (N, count)


def _fractions(seed: Tensor, purpose: str, count: int) -> NDArray[numpy.float32]:
    """What `uniform` draws for seeds on a CPU."""
    return (words(seed, purpose, count) >> numpy.uint32(8)).astype(numpy.float32) * numpy.float32(2.0**-24)


def between(seed: Tensor, purpose: str, low: float, high: float) -> Tensor:
    """One float in [low, high) for each seed, shaped to broadcast over pictures."""
    if seed.device.type == "cpu":
        numbers = _fractions(seed, purpose, 1) * numpy.float32(high - low) + numpy.float32(low)
        return torch.from_numpy(numbers[:, :, None])  # (N, 1, 1)
    return (low + (high - low) * uniform(seed, purpose))[:, :, None]


def choice(seed: Tensor, purpose: str, options: int | Tensor) -> Tensor:
    """An index below `options` for each seed; `options` may differ by row."""
    return bits(seed, purpose)[:, 0] % options  # (N,)


def lattice(seed: Tensor, purpose: str, height: int, width: int) -> Tensor:
    """Independent uniform numbers on a grid, one grid a seed; 16 bits each, two from every hash."""
    return _whole(seed, purpose, height * width).view(-1, height, width).mul_(2.0**-16)


def _knots(seed: Tensor, purpose: str, height: int, width: int) -> Tensor:
    """The same numbers from -1 to 1; two steps that are exact, like all the others here."""
    return _whole(seed, purpose, height * width).view(-1, height, width).mul_(2.0**-15).sub_(1)


def _whole(seed: Tensor, purpose: str, count: int) -> Tensor:
    """Whole numbers of 16 bits as floats: the lower halves of as many hashes as it takes, then the upper ones, (N, count)."""
    half = (count + 1) // 2
    if seed.device.type != "cpu":
        pairs = bits_in_torch(seed, purpose, half)
        return torch.cat((pairs & 0xFFFF, pairs >> 16), dim=1)[:, :count].to(torch.float32).contiguous()
    pair = words(seed, purpose, half)
    numbers = numpy.empty((len(pair), count), dtype=numpy.float32)
    numbers[:, :half] = pair & numpy.uint32(0xFFFF)
    numbers[:, half:] = (pair >> numpy.uint32(16))[:, : count - half]
    return torch.from_numpy(numbers)


def smooth(seed: Tensor, purpose: str, height: int, width: int) -> Tensor:
    """Smooth noise about 0, roughly within ±1: a random grid of `height` by `width` knots, interpolated to 64x64."""
    knots = _knots(seed, purpose, height, width)
    return stretched(knots, _spline(height, seed.device), _spline(width, seed.device))  # (N, 64, 64)


def stretched(fields: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Fields (N, h, w) resampled by weights (H, h) and (W, w) to (N, H, W), each picture the same whatever the batch."""
    if not fields.is_cuda:
        return torch.matmul(down, torch.matmul(fields, across.T))
    # Products in float32 may be rounded to TF32 on CUDA, by a global setting; those in float64 never are.
    wide = torch.matmul(fields.double(), across.T.double())
    return torch.matmul(down.double(), wide).to(torch.float32)


def line(seed: Tensor, purpose: str, knots: int) -> Tensor:
    """Smooth noise along one axis, roughly within ±1, (N, 1, 64)."""
    heights = _knots(seed, purpose, knots, 1)
    return (heights * _spline(knots, seed.device).T).sum(1, keepdim=True)


@cache
def _spline(knots: int, device: torch.device) -> Tensor:
    """Weights that interpolate `knots` values to 64 along a cubic, (64, knots)."""
    unit = torch.eye(knots)[:, None, :, None]  # each knot in turn is 1
    drawn = F.interpolate(unit, size=(64, 1), mode="bicubic", align_corners=True)
    return drawn[:, 0, :, 0].T.contiguous().to(device)
