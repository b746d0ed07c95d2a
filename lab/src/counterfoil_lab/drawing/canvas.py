"""Drawing tools on batches of 64x64 images, counter-based noise, and drawing by value.

Every random number is a hash of the scene's seed, a salt that names the purpose and a counter, so a scene's details depend
neither on its batch nor on the device. On a CPU numpy computes the hashes in unsigned 32-bit integers; elsewhere torch does in
int64, where all products stay below 2^63.

Scalar fields have shape (N, 64, 64), colours (N, 3, 64, 64) or (3, 1, 1). A tool leaves its arguments as they are; inside,
results are changed in place, because an image's arithmetic costs less than fetching it from memory.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

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
    """Return what `bits` draws, computed on the seeds' own device."""
    high = scramble((seed >> 32) ^ _salt(purpose))
    start = scramble(seed ^ high)
    return scramble(start[:, None] + _counters(count, seed.device))  # (N, count)


def words(seed: Tensor, purpose: str, count: int) -> Words:
    """Return what `bits` draws for seeds on a CPU, (N, count)."""
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
    """Return what `uniform` draws for seeds on a CPU."""
    return (words(seed, purpose, count) >> numpy.uint32(8)).astype(numpy.float32) * numpy.float32(2.0**-24)


def between(seed: Tensor, purpose: str, low: float, high: float) -> Tensor:
    """One float in [low, high) for each seed, shaped to broadcast over images."""
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
    return stretch(knots, _spline(height, seed.device), _spline(width, seed.device))  # (N, 64, 64)


def stretch(fields: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Fields (N, h, w) resampled by weights (H, h) and (W, w) to (N, H, W), each image the same whatever the batch."""
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


SIZE = 64


@cache
def grid(device: torch.device) -> tuple[Tensor, Tensor]:
    """Column and row of every pixel, x to the right and y downwards, each (1, 64, 64)."""
    line = torch.arange(SIZE, dtype=torch.float32, device=device)
    return line.view(1, 1, -1).expand(1, SIZE, SIZE).contiguous(), line.view(1, -1, 1).expand(1, SIZE, SIZE).contiguous()


@cache
def ink(device: torch.device, red: float, green: float, blue: float) -> Tensor:
    """A colour that broadcasts over images, (3, 1, 1)."""
    return torch.tensor((red, green, blue), dtype=torch.float32, device=device).view(3, 1, 1)


@cache
def number(value: float) -> Tensor:
    """A number ready for arithmetic with fields on any device; a plain one is made into a tensor again in every operation."""
    return torch.tensor(value, dtype=torch.float32)


def step(field: Tensor, edge: float | Tensor = 0.0, softness: float = 1.0) -> Tensor:
    """0 below the edge, 1 above it, with a ramp `softness` wide: an antialiased threshold."""
    ramp = field if softness == 1 else field * number(1 / softness)
    middle = 0.5 - (edge if softness == 1 else edge / softness)
    return (ramp + (middle if isinstance(middle, Tensor) else number(middle))).clamp_(0, 1)


def ease(field: Tensor, low: float, high: float) -> Tensor:
    """A smooth rise from 0 at `low` to 1 at `high`; a fall if `high` is the smaller."""
    ramp = field * number(1 / (high - low))
    if low != 0:
        ramp.sub_(number(low / (high - low)))
    ramp.clamp_(0, 1)
    rest = (ramp * number(-2)).add_(number(3))
    return ramp.mul_(ramp).mul_(rest)


def wrap(position: Tensor, period: float) -> tuple[Tensor, Tensor]:
    """Return which period of a repeating pattern a position is in, and how far into it."""
    turn = (position * number(1 / period)).floor_()
    start = turn * number(period)
    return turn, torch.sub(position, start, out=start)


def wave(position: Tensor, period: float) -> Tensor:
    """A sine along a position, one wave a period."""
    return (position * (2 * math.pi / period)).sin_()


def odd(whole: Tensor) -> Tensor:
    """1 where a whole number is odd, 0 where it is even."""
    return wrap(whole, 2)[1]


def mix(first: Tensor, second: Tensor, share: Tensor | float) -> Tensor:
    """From the first colour to the second by a share, a number or a field (N, 64, 64)."""
    if not isinstance(share, Tensor):
        return torch.lerp(first, second, share)
    if first.shape[-1] == second.shape[-1] == 1 and not share.is_cuda:
        # A CPU's vector loop takes one even colour, not two.
        first = first.expand(*first.shape[:-2], *share.shape[-2:]).contiguous()
    return torch.lerp(first, second, share.unsqueeze(1))


def over(picture: Tensor, colour: Tensor, share: Tensor | float) -> Tensor:
    """Return what `mix` gives for an image that no one looks at again: it is drawn on in place."""
    if len(picture) == 1:  # it may be the same so far for all of a batch
        return mix(picture, colour, share)
    return picture.lerp_(colour, share.unsqueeze(1) if isinstance(share, Tensor) else share)


def apply_shade(colour: Tensor, field: Tensor) -> Tensor:
    """A colour multiplied by a field of brightness."""
    return colour * field.unsqueeze(1)


def apply_tone(picture: Tensor, field: Tensor) -> Tensor:
    """Return what `shaded` gives for an image that no one looks at again."""
    return apply_shade(picture, field) if len(picture) < len(field) else picture.mul_(field.unsqueeze(1))


def luminance(colours: Tensor) -> Tensor:
    """Describe how bright an image looks, (N, 64, 64)."""
    red, green, blue = colours.unbind(1)
    return (red * number(0.299)).add_(green * number(0.587)).add_(blue * number(0.114))


def saturate(colours: Tensor, amount: float) -> Tensor:
    """Colours moved away from (above 1) or towards (below 1) their own grey."""
    grey = luminance(colours).unsqueeze(1)
    return (colours - grey).mul_(number(amount)).add_(grey).clamp_(0, 1)


def contrast(field: Tensor) -> Tensor:
    """Strength of the local change of a field: the sum of its absolute differences to the right and below."""
    change = torch.zeros_like(field)
    change[:, :, :-1] += (field[:, :, 1:] - field[:, :, :-1]).abs_()
    change[:, :-1] += (field[:, 1:] - field[:, :-1]).abs_()
    return change


def cell(row: Tensor | float, column: Tensor | float) -> Tensor:
    """The place of every pixel's (row, column) on a 16x16 board that repeats."""
    place = row * number(16.0) + column
    assert isinstance(place, Tensor), "a row or a column is a field"
    return place.int().bitwise_and_(255).long()  # by way of int32, which is faster than straight to int64


def per_cell(seed: Tensor, purpose: str, place: Tensor) -> Tensor:
    """One uniform number for each cell of a 16x16 board, looked up for every pixel's place on it."""
    board = lattice(seed, purpose, 16, 16).flatten(1)  # (N, 256)
    return board.gather(1, place.expand(len(seed), SIZE, SIZE).flatten(1)).view(-1, SIZE, SIZE)


def spread(field: Tensor) -> Tensor:
    """The largest value among a pixel and its eight neighbours, for fields of any size that are not negative."""
    wide = field.clone()
    torch.maximum(wide[..., :-1], field[..., 1:], out=wide[..., :-1])
    torch.maximum(wide[..., 1:], field[..., :-1], out=wide[..., 1:])
    tall = wide.clone()
    torch.maximum(tall[..., :-1, :], wide[..., 1:, :], out=tall[..., :-1, :])
    torch.maximum(tall[..., 1:, :], wide[..., :-1, :], out=tall[..., 1:, :])
    return tall


def blur(field: Tensor) -> Tensor:
    """The weighted mean of a pixel and its eight neighbours, for fields of any size; 0 flows in."""
    beside = torch.zeros_like(field)
    beside[..., :-1] = field[..., 1:]
    beside[..., 1:] += field[..., :-1]
    wide = beside.mul_(number(0.25)).add_(field * number(0.5))
    around = torch.zeros_like(wide)
    around[..., :-1, :] = wide[..., 1:, :]
    around[..., 1:, :] += wide[..., :-1, :]
    return around.mul_(number(0.25)).add_(wide.mul_(number(0.5)))


def shift(field: Tensor, right: int, down: int) -> Tensor:
    """A field shifted by whole pixels, 0 flowing in; not negative."""
    result = torch.zeros_like(field)
    result[..., down:, right:] = field[..., : SIZE - down, : SIZE - right]
    return result


Painter = Callable[[Tensor, Tensor], None]  # draws the scenes of these rows onto these sheets
_BLOCK: Final = 96  # beyond as many scenes at once, a core waits more for memory than it gains from fewer calls


@dataclass(frozen=True)
class Drawn:
    """Images or fields in the order in which they were drawn."""

    sheets: Tensor  # (M, …)
    place: Tensor  # (N,) which sheet is a scene's

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Those of some scenes, in the scenes' order."""
        return self.sheets.index_select(0, self.place.index_select(0, rows))


def by_value(values: Tensor, names: Sequence[str], painters: Mapping[str, Painter], *, shape: tuple[int, ...]) -> Drawn:
    """Let each value's painter draw the scenes that have it; scenes of a value without a painter share a sheet of zeros."""
    tasks = [(painters[name], rows) for name, rows in group(values, names) if name in painters]
    rows = torch.cat([values[:0], *(rows for _, rows in tasks)])
    place = torch.zeros_like(values)
    place[rows] = torch.arange(1, len(rows) + 1, device=values.device)
    sheets = torch.empty((len(rows) + 1, *shape), device=values.device)
    sheets[0] = 0
    start = 1
    for paint, some in tasks:
        paint(some, sheets[start : start + len(some)])
        start += len(some)
    return Drawn(sheets, place)


def group(values: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """The rows of each value that occurs, in blocks."""
    counts = torch.bincount(values, minlength=len(names)).tolist()
    for name, rows in zip(names, values.argsort(stable=True).split(counts), strict=True):
        for block in blocks(rows):
            yield name, block


def put(target: Tensor, places: Tensor, values: Tensor) -> None:
    """Write images to their places in a batch."""
    if target.device.type == "cpu":
        target.numpy()[places.numpy()] = values.numpy()  # copies rows whole, as torch does not
    else:
        target.index_copy_(0, places, values)


def blocks(rows: Tensor, size: int = _BLOCK) -> Sequence[Tensor]:
    """Rows, or what there is one of a row: on a CPU in parts of about even size, elsewhere whole; none of no rows."""
    if not len(rows):
        return ()
    return rows.chunk(-(-len(rows) // size)) if rows.device.type == "cpu" else (rows,)
