"""Weather that falls between the viewer and the scene, drawn over the finished picture."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.lab.canvas import cell, ease, grid, ink, mix, over, per_cell, shaded, step, wrap
from counterfoil.lab.randomness import between, line, smooth


def clear(picture: Tensor, solid: Tensor, seed: Tensor) -> Tensor:
    """Nothing falls."""
    return picture


def rain(picture: Tensor, solid: Tensor, seed: Tensor) -> Tensor:
    """Slanted streaks, light with a dark side so that they show on anything."""
    x, y = grid(seed.device)
    picture = picture * 0.94
    slant = between(seed, "slant", 0.18, 0.34)
    for number, (wide, tall, strength) in enumerate(((7.0, 26.0, 0.65), (12.0, 34.0, 0.85))):
        column, right = wrap(x + slant * y + between(seed, f"rain {number}", 0, wide), wide)
        row, length = wrap(y + tall * per_cell(seed, f"fall {number}", cell(0, column)), tall)
        off = right - 1.5 - (wide - 4) * per_cell(seed, f"drop {number}", cell(row, column))
        there = ease(length, tall * 0.45, tall * 0.65)
        picture = over(picture, ink(seed.device, 0.20, 0.25, 0.34), 0.38 * step(0.6 - (off - 1.1).abs(), 0.0, 0.8) * there)
        picture = over(picture, ink(seed.device, 0.88, 0.93, 1.0), strength * step(0.6 - off.abs(), 0.0, 0.8) * there)
    return picture


def fog(picture: Tensor, solid: Tensor, seed: Tensor) -> Tensor:
    """A pale veil in drifting banks, thinner before the garment and the second object than before what lies behind them."""
    banks = 0.6 * smooth(seed, "banks", 9, 3) + 0.4 * smooth(seed, "wisps", 14, 5)
    density = 0.64 - 0.28 * solid + 0.16 * banks
    return over(picture, ink(seed.device, 0.80, 0.82, 0.85), density.clamp_(0, 0.9))


def snow(picture: Tensor, solid: Tensor, seed: Tensor) -> Tensor:
    """Flakes near and far, and a drift along the lower border."""
    x, y = grid(seed.device)
    drift = between(seed, "drift", 57.5, 60.0) + 1.6 * line(seed, "drift line", 6)
    cover = shaded(ink(seed.device, 0.95, 0.97, 1.0), 0.97 + 0.05 * smooth(seed, "drift shade", 20, 20))
    picture = over(picture, cover, 0.95 * step(y, drift))
    for number, (pitch, small, large) in enumerate(((10.0, 0.5, 1.2), (19.0, 1.2, 2.1))):
        row, down = wrap(y + between(seed, f"snow y {number}", 0, pitch), pitch)
        column, right = wrap(x + between(seed, f"snow x {number}", 0, pitch), pitch)
        free = pitch - 2 * large - 2
        flake = cell(row, column)
        off_x = right - large - 1 - free * per_cell(seed, f"flake x {number}", flake)
        off_y = down - large - 1 - free * per_cell(seed, f"flake y {number}", flake)
        size = small + (large - small) * per_cell(seed, f"flake {number}", flake)
        away = (off_x**2 + off_y**2).sqrt_() - size
        picture = over(picture, ink(seed.device, 0.42, 0.50, 0.64), 0.45 * step(1.0 - away))
        picture = over(picture, ink(seed.device, 1.0, 1.0, 1.0), step(-away))
    return picture


def wind(picture: Tensor, solid: Tensor, seed: Tensor) -> Tensor:
    """Autumn leaves and pale gusts blown across."""
    x, y = grid(seed.device)
    _, wave = wrap(y + 2.5 * (x * 0.16 + between(seed, "gust", 0, 6)).sin_() + between(seed, "gust y", 3, 16), 13.0)
    line = step(0.55 - (wave - 6.5).abs(), 0.0, 0.8) * ease(smooth(seed, "gusts", 10, 4), -0.1, 0.5)
    picture = over(picture, ink(seed.device, 0.90, 0.95, 0.98), 0.7 * line)
    row, down = wrap(y + between(seed, "leaf y", 0, 18), 18.0)
    column, right = wrap(x + between(seed, "leaf x", 0, 18), 18.0)
    place = cell(row, column)
    off_x = right - 4.5 - 9 * per_cell(seed, "leaf right", place)
    off_y = down - 4.5 - 9 * per_cell(seed, "leaf down", place)
    turn = per_cell(seed, "leaf turn", place) * math.pi
    cos, sin = turn.cos(), turn.sin()
    along, aside = off_x * cos + off_y * sin, (off_y * cos - off_x * sin).abs_()
    shape = 1.9 * (1 - (along / 4.2) ** 2) - aside
    dark = torch.maximum(step(0.35 - aside, 0.0, 0.7), step(-shape, -0.8))
    hue = mix(ink(seed.device, 0.80, 0.30, 0.06), ink(seed.device, 0.86, 0.62, 0.10), per_cell(seed, "leaf hue", place))
    leaf = mix(hue, ink(seed.device, 0.36, 0.16, 0.04), 0.8 * dark)
    there = step(per_cell(seed, "leaf there", place), 0.2, 0.01)
    return over(picture, leaf, step(shape) * step(4.2 - along.abs()) * there)


SKIES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "clear": clear,
    "rain": rain,
    "fog": fog,
    "snow": snow,
    "wind": wind,
}
