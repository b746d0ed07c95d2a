"""Small drawing tools on batches of 64x64 pictures: coordinates, soft edges, mixing, cells and per-value grouping.

Scalar fields have shape (N, 64, 64), colours (N, 3, 64, 64) or (3, 1, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
import torch.nn.functional as F
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


def step(field: Tensor, edge: float | Tensor = 0.0, softness: float = 1.0) -> Tensor:
    """0 below the edge, 1 above it, with a ramp `softness` wide: an antialiased threshold."""
    return (field * (1 / softness) + (0.5 - edge / softness)).clamp_(0, 1)


def ease(field: Tensor, low: float, high: float) -> Tensor:
    """A smooth rise from 0 at `low` to 1 at `high`; a fall if `high` is the smaller."""
    ramp = (field * (1 / (high - low)) - low / (high - low)).clamp_(0, 1)
    return ramp * ramp * (3 - 2 * ramp)


def wrap(position: Tensor, period: float) -> tuple[Tensor, Tensor]:
    """Which period of a repeating pattern a position is in, and how far into it."""
    number = (position * (1 / period)).floor_()
    return number, position - number * period


def mix(first: Tensor, second: Tensor, share: Tensor | float) -> Tensor:
    """From the first colour to the second by a share, a number or a field (N, 64, 64)."""
    return torch.lerp(first, second, share.unsqueeze(1) if isinstance(share, Tensor) else share)


def shaded(colour: Tensor, field: Tensor) -> Tensor:
    """A colour multiplied by a field of brightness."""
    return colour * field.unsqueeze(1)


def luminance(colours: Tensor) -> Tensor:
    """How bright a picture looks, (N, 64, 64)."""
    return 0.299 * colours[:, 0] + 0.587 * colours[:, 1] + 0.114 * colours[:, 2]


def saturated(colours: Tensor, amount: float) -> Tensor:
    """Colours moved away from (above 1) or towards (below 1) their own grey."""
    grey = luminance(colours).unsqueeze(1)
    return (grey + (colours - grey) * amount).clamp(0, 1)


def contrast(field: Tensor) -> Tensor:
    """Strength of the local change of a field: the sum of its absolute differences to the right and below."""
    change = torch.zeros_like(field)
    change[:, :, :-1] += (field[:, :, 1:] - field[:, :, :-1]).abs()
    change[:, :-1] += (field[:, 1:] - field[:, :-1]).abs()
    return change


def per_cell(seed: Tensor, purpose: str, row: Tensor | float, column: Tensor | float) -> Tensor:
    """One uniform number for each cell of a 16x16 board that repeats, looked up for every pixel's (row, column)."""
    board = lattice(seed, purpose, 16, 16).flatten(1)  # (N, 256)
    place = torch.as_tensor(row * 16.0 + column, device=seed.device).long() & 255
    return board.gather(1, place.expand(len(seed), SIZE, SIZE).flatten(1)).view(-1, SIZE, SIZE)


def spread(field: Tensor) -> Tensor:
    """The largest value among a pixel and its eight neighbours, for fields of any size."""
    wide = torch.maximum(field, torch.maximum(F.pad(field[..., 1:], (0, 1)), F.pad(field[..., :-1], (1, 0))))
    return torch.maximum(wide, torch.maximum(F.pad(wide[..., 1:, :], (0, 0, 0, 1)), F.pad(wide[..., :-1, :], (0, 0, 1, 0))))


def blurred(field: Tensor) -> Tensor:
    """The weighted mean of a pixel and its eight neighbours, for fields of any size; 0 flows in."""
    wide = 0.5 * field + 0.25 * (F.pad(field[..., 1:], (0, 1)) + F.pad(field[..., :-1], (1, 0)))
    return 0.5 * wide + 0.25 * (F.pad(wide[..., 1:, :], (0, 0, 0, 1)) + F.pad(wide[..., :-1, :], (0, 0, 1, 0)))


def moved(field: Tensor, right: int, down: int) -> Tensor:
    """A field shifted by whole pixels, 0 flowing in; not negative."""
    result = torch.zeros_like(field)
    result[..., down:, right:] = field[..., : SIZE - down, : SIZE - right]
    return result


def by_value(values: Tensor, names: Sequence[str], painters: Mapping[str, Callable[[Tensor], None]]) -> None:
    """Call the painter of each value that occurs with the rows that have it."""
    for index, name in enumerate(names):
        if name in painters:
            rows = (values == index).nonzero()[:, 0]
            if len(rows):
                painters[name](rows)
