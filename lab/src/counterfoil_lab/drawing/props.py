"""Second objects and the weather."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil_lab.drawing.canvas import (
    SIZE,
    Drawn,
    Painter,
    apply_shade,
    apply_tone,
    between,
    by_value,
    cell,
    ease,
    grid,
    ink,
    line,
    mix,
    over,
    per_cell,
    smooth,
    step,
    uniform,
    wrap,
)
from counterfoil_lab.world import OBJECTS

TOP = 40  # objects stay below this row: only the strip under it is drawn
_RADIUS = 8.5


def companion(kind: Tensor, seed: Tensor) -> Drawn:
    """Three colours, coverage and cast shadow in the rows from TOP on, (N, 5, 24, 64); zeros for "nothing"."""

    def painter(draw: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            x, y = (field[:, TOP:] for field in grid(seed.device))
            seeds = seed[rows]
            left = between(seeds, "corner x", 9.5, 11.5)
            centre = torch.where(uniform(seeds, "corner side")[:, :, None] < 0.5, left, 63 - left)
            middle = between(seeds, "corner y", 51.5, 53.0)
            size = between(seeds, "object size", 0.94, 1.06) * _RADIUS
            right, down = (x - centre) / size, (y - middle) / size
            sheets[:, :3], sheets[:, 3] = draw(right, down, 1 / _RADIUS)
            sheets[:, 4] = ease(1.15 - ((right - 0.15) ** 2 + ((down - 0.98) * 3.2) ** 2).sqrt(), 0.0, 0.5)

        return paint

    return by_value(kind, OBJECTS, {name: painter(draw) for name, draw in _THINGS.items()}, shape=(5, SIZE - TOP, SIZE))


def _ball(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A beach ball: six wedges and a highlight."""
    down = down - 0.12
    away = (right * right + down * down).sqrt()
    wedge = step((torch.atan2(down + 0.25, right - 0.2) * 3 + 0.6).sin(), 0.0, 0.5)
    paint = mix(ink(right.device, 0.97, 0.97, 0.95), ink(right.device, 0.86, 0.14, 0.20), wedge)
    lit = apply_tone(paint, 1.08 - 0.55 * ease(away + 0.5 * (right + down), 0.1, 1.6))
    gleam = ease(0.3 - ((right + 0.35) ** 2 + (down + 0.4) ** 2).sqrt(), 0.0, 0.2)
    return over(lit, ink(right.device, 1, 1, 1), 0.8 * gleam), step(0.86 - away, 0.0, pixel)


def _cup(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A blue mug with a handle and dark coffee."""
    body = torch.minimum(0.56 - 0.06 * down - (right + 0.18).abs(), 0.80 - (down - 0.08).abs())
    ring = 0.12 - (((right - 0.42) ** 2 + (down * 0.85) ** 2).sqrt() - 0.36).abs()
    top = 1 - (((right + 0.18) / 0.58) ** 2 + ((down + 0.70) / 0.20) ** 2).sqrt()
    lit = apply_shade(ink(right.device, 0.16, 0.45, 0.75), 1.25 - 0.75 * ease(right, -0.7, 0.7))
    lit = over(lit, ink(right.device, 0.97, 0.97, 0.95), 0.85 * step(0.12 - (down - 0.15).abs(), 0.0, pixel))
    lit = over(lit, ink(right.device, 0.75, 0.90, 1.0), step(top, 0.0, pixel * 2))
    lit = over(lit, ink(right.device, 0.22, 0.11, 0.05), step(top, 0.28, pixel * 2))
    return lit, step(torch.maximum(torch.maximum(body, ring), top * 0.3), 0.0, pixel)


def _cone(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """An orange traffic cone with white bands on a foot."""
    side = torch.minimum(0.12 + 0.30 * (down + 0.95) - right.abs(), 0.95 - (down - 0.0).abs())
    foot = torch.minimum(0.85 - right.abs(), 0.12 - (down - 0.86).abs())
    bands = torch.maximum(step(0.13 - (down + 0.35).abs(), 0.0, pixel), step(0.15 - (down - 0.22).abs(), 0.0, pixel))
    paint = mix(
        ink(right.device, 1.0, 0.42, 0.05), ink(right.device, 0.97, 0.97, 0.95), bands * step(foot, 0.0, pixel).neg().add(1)
    )
    lit = apply_tone(paint, 1.12 - 0.55 * ease(right, -0.5, 0.6))
    return lit, step(torch.maximum(side, foot), 0.0, pixel)


def _lamp(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A table lamp: glowing shade, thin stem, round foot."""
    shade = torch.minimum(0.50 + 0.42 * (down + 0.5) - right.abs(), 0.46 - (down + 0.50).abs())
    stem = torch.minimum(0.09 - right.abs(), 0.50 - (down - 0.40).abs())
    foot = 0.5 - ((right) ** 2 + ((down - 0.88) * 3.4) ** 2).sqrt()
    glow = mix(
        ink(right.device, 1.0, 0.84, 0.36), ink(right.device, 1.0, 0.97, 0.78), ease(0.6 - right.abs() + down + 0.4, 0.0, 0.7)
    )
    metal = apply_shade(ink(right.device, 0.28, 0.22, 0.20), 1.3 - 0.6 * ease(right, -0.3, 0.4))
    return over(metal, glow, step(shade, 0.0, pixel)), step(torch.maximum(shade, torch.maximum(stem, foot)), 0.0, pixel)


def _cube(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A wooden toy block seen from a corner: three faces, three tones."""
    slant = 0.5 * right.abs()
    top = torch.minimum(down + 0.85 - slant, 0.05 - slant - down)
    body = torch.minimum(torch.minimum(0.80 - right.abs(), down + 0.05 + slant), 0.95 - slant - down)
    whole = torch.maximum(torch.minimum(top, 0.80 - right.abs()), body)
    side = mix(ink(right.device, 0.22, 0.62, 0.42), ink(right.device, 0.10, 0.34, 0.26), step(right, 0.0, pixel))
    faces = over(side, ink(right.device, 0.55, 0.86, 0.62), step(-0.05 - slant - down + 0.05, 0.0, pixel))
    return faces, step(whole, 0.0, pixel)


def _cactus(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A cactus with two arms in a clay pot."""
    stem = torch.minimum(0.24 - right.abs(), torch.minimum(down + 0.95, 0.45 - down))
    left = torch.minimum(0.13 - (right + 0.55).abs(), 0.26 - (down + 0.25).abs())
    link = torch.minimum(0.30 - (right + 0.32).abs(), 0.10 - (down + 0.05).abs())
    other = torch.minimum(0.13 - (right - 0.55).abs(), 0.28 - (down + 0.42).abs())
    bridge = torch.minimum(0.30 - (right - 0.32).abs(), 0.10 - (down + 0.20).abs())
    plant = torch.stack(torch.broadcast_tensors(stem, left, link, other, bridge)).amax(0)
    pot = torch.minimum(0.52 - 0.25 * (down - 0.4) - right.abs(), 0.32 - (down - 0.63).abs())
    ribs = 1.1 - 0.35 * ease(right, -0.5, 0.6) + 0.18 * (right * 26).sin()
    green = apply_shade(ink(right.device, 0.22, 0.58, 0.26), ribs)
    clay = apply_shade(
        ink(right.device, 0.78, 0.38, 0.22),
        1.15 - 0.55 * ease(right, -0.5, 0.6) - 0.2 * step(0.05 - (down - 0.48).abs(), 0.0, pixel),
    )
    return over(green, clay, step(pot, 0.0, pixel)), step(torch.maximum(plant, pot), 0.0, pixel)


_THINGS: dict[str, Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]] = {
    "ball": _ball,
    "cup": _cup,
    "cone": _cone,
    "lamp": _lamp,
    "cube": _cube,
    "cactus": _cactus,
}


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
    cover = apply_shade(ink(seed.device, 0.95, 0.97, 1.0), 0.97 + 0.05 * smooth(seed, "drift shade", 20, 20))
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
