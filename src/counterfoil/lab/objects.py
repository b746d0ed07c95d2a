"""The second object: small things that stand in a lower corner, in front of the garment."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.lab.canvas import SIZE, ease, grid, ink, mix, over, shaded, step, toned
from counterfoil.lab.groups import Drawn, Painter, by_value
from counterfoil.lab.randomness import between, uniform
from counterfoil.lab.vocabulary import OBJECTS

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
    lit = toned(paint, 1.08 - 0.55 * ease(away + 0.5 * (right + down), 0.1, 1.6))
    gleam = ease(0.3 - ((right + 0.35) ** 2 + (down + 0.4) ** 2).sqrt(), 0.0, 0.2)
    return over(lit, ink(right.device, 1, 1, 1), 0.8 * gleam), step(0.86 - away, 0.0, pixel)


def _cup(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A blue mug with a handle and dark coffee."""
    body = torch.minimum(0.56 - 0.06 * down - (right + 0.18).abs(), 0.80 - (down - 0.08).abs())
    ring = 0.12 - (((right - 0.42) ** 2 + (down * 0.85) ** 2).sqrt() - 0.36).abs()
    top = 1 - (((right + 0.18) / 0.58) ** 2 + ((down + 0.70) / 0.20) ** 2).sqrt()
    lit = shaded(ink(right.device, 0.16, 0.45, 0.75), 1.25 - 0.75 * ease(right, -0.7, 0.7))
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
    lit = toned(paint, 1.12 - 0.55 * ease(right, -0.5, 0.6))
    return lit, step(torch.maximum(side, foot), 0.0, pixel)


def _lamp(right: Tensor, down: Tensor, pixel: float) -> tuple[Tensor, Tensor]:
    """A table lamp: glowing shade, thin stem, round foot."""
    shade = torch.minimum(0.50 + 0.42 * (down + 0.5) - right.abs(), 0.46 - (down + 0.50).abs())
    stem = torch.minimum(0.09 - right.abs(), 0.50 - (down - 0.40).abs())
    foot = 0.5 - ((right) ** 2 + ((down - 0.88) * 3.4) ** 2).sqrt()
    glow = mix(
        ink(right.device, 1.0, 0.84, 0.36), ink(right.device, 1.0, 0.97, 0.78), ease(0.6 - right.abs() + down + 0.4, 0.0, 0.7)
    )
    metal = shaded(ink(right.device, 0.28, 0.22, 0.20), 1.3 - 0.6 * ease(right, -0.3, 0.4))
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
    green = shaded(ink(right.device, 0.22, 0.58, 0.26), ribs)
    clay = shaded(
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
