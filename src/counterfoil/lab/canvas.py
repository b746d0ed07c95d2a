"""Small drawing tools on batches of 64x64 pictures: coordinates, soft edges, mixing and cells.

Scalar fields have shape (N, 64, 64), colours (N, 3, 64, 64) or (3, 1, 1). What is given to a tool stays as it is; inside, results
are worked on in place, because a picture's arithmetic costs less than fetching it from memory.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from counterfoil.lab.randomness import lattice

SIZE = 64


@cache
def grid(device: torch.device) -> tuple[Tensor, Tensor]:
    """Column and row of every pixel, x to the right and y downwards, each (1, 64, 64)."""
    line = torch.arange(SIZE, dtype=torch.float32, device=device)
    return line.view(1, 1, -1).expand(1, SIZE, SIZE).contiguous(), line.view(1, -1, 1).expand(1, SIZE, SIZE).contiguous()


@cache
def ink(device: torch.device, red: float, green: float, blue: float) -> Tensor:
    """A colour that broadcasts over pictures, (3, 1, 1)."""
    return torch.tensor((red, green, blue), dtype=torch.float32, device=device).view(3, 1, 1)


@cache
def number(value: float) -> Tensor:
    """A number ready for arithmetic with fields on any device; a plain one is made into a tensor anew in every operation."""
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
    """Which period of a repeating pattern a position is in, and how far into it."""
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
    """What `mix` gives for a picture that nobody looks at again: it is drawn on in place."""
    if len(picture) == 1:  # it may be the same so far for all of a batch
        return mix(picture, colour, share)
    return picture.lerp_(colour, share.unsqueeze(1) if isinstance(share, Tensor) else share)


def shaded(colour: Tensor, field: Tensor) -> Tensor:
    """A colour multiplied by a field of brightness."""
    return colour * field.unsqueeze(1)


def toned(picture: Tensor, field: Tensor) -> Tensor:
    """What `shaded` gives for a picture that nobody looks at again."""
    return shaded(picture, field) if len(picture) < len(field) else picture.mul_(field.unsqueeze(1))


def luminance(colours: Tensor) -> Tensor:
    """How bright a picture looks, (N, 64, 64)."""
    red, green, blue = colours.unbind(1)
    return (red * number(0.299)).add_(green * number(0.587)).add_(blue * number(0.114))


def saturated(colours: Tensor, amount: float) -> Tensor:
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


def blurred(field: Tensor) -> Tensor:
    """The weighted mean of a pixel and its eight neighbours, for fields of any size; 0 flows in."""
    beside = torch.zeros_like(field)
    beside[..., :-1] = field[..., 1:]
    beside[..., 1:] += field[..., :-1]
    wide = beside.mul_(number(0.25)).add_(field * number(0.5))
    around = torch.zeros_like(wide)
    around[..., :-1, :] = wide[..., 1:, :]
    around[..., 1:, :] += wide[..., :-1, :]
    return around.mul_(number(0.25)).add_(wide.mul_(number(0.5)))


def moved(field: Tensor, right: int, down: int) -> Tensor:
    """A field shifted by whole pixels, 0 flowing in; not negative."""
    result = torch.zeros_like(field)
    result[..., down:, right:] = field[..., : SIZE - down, : SIZE - right]
    return result
