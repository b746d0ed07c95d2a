"""Patterns printed on a garment: for each pixel, the share of the garment's second tone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.lab.canvas import SIZE, odd, step, wave, wrap
from counterfoil.lab.figures import Surface
from counterfoil.lab.groups import Drawn, Painter, by_value
from counterfoil.lab.randomness import between, smooth
from counterfoil.lab.vocabulary import TEXTURES


def pattern(texture: Tensor, surface: Surface, seed: Tensor) -> Drawn:
    """The second tone's share for every pixel, (N, 64, 64)."""

    def painter(draw: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            seeds = seed[rows]
            size = between(seeds, "pattern size", 0.9, 1.1)
            across = surface.across.index_select(0, rows).mul_(size).add_(between(seeds, "pattern x", 0, 16))
            along = surface.along.index_select(0, rows).mul_(size).add_(between(seeds, "pattern y", 0, 16))
            sheets.copy_(draw(across, along, seeds))

        return paint

    return by_value(texture, TEXTURES, {name: painter(draw) for name, draw in _PATTERNS.items()}, shape=(SIZE, SIZE))


def _striped(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Level bands."""
    return step(wave(along, 9.0), softness=0.7)


def _dotted(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Round dots in staggered rows."""
    row, y = wrap(along, 6.5)
    _, x = wrap(across + 4 * odd(row), 8.0)
    return step(2.4 - ((x - 4) ** 2 + (y - 3.25) ** 2).sqrt_())


def _checkered(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """A chessboard of five-pixel squares."""
    return step(wave(across, 10.0) * wave(along, 10.0), softness=0.5)


def _zigzag(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Bands that go up and down in straight lines."""
    _, place = wrap(across, 11.0)
    return step(wave(along + 3.2 * ((place * (4 / 11.0) - 2).abs() - 1), 9.0), softness=0.8)


def _camouflage(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Blots of two lighter (or darker) tones."""
    first = step(smooth(seed, "camouflage", 10, 8), 0.05, 0.12)
    second = step(smooth(seed, "camouflage again", 9, 11), 0.25, 0.12)
    return torch.maximum(0.45 * first, second)


_PATTERNS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "striped": _striped,
    "dotted": _dotted,
    "checkered": _checkered,
    "zigzag": _zigzag,
    "camouflage": _camouflage,
}
