"""A garment in its pose, with its material and its pattern."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil_lab.drawing.canvas import (
    SIZE,
    Drawn,
    Painter,
    apply_tone,
    between,
    blocks,
    blur,
    by_value,
    ease,
    grid,
    ink,
    mix,
    odd,
    over,
    shift,
    smooth,
    spread,
    step,
    stretch,
    uniform,
    wave,
    wrap,
)
from counterfoil_lab.world import COLOURS, MATERIALS, TEXTURES

_MARGIN = 4  # source pixels around the 28x28 garment, so that its blurred outline is not cut off
_SOURCE = 28 + 2 * _MARGIN
_FINE = 2 * _SOURCE
_BLOCK = 48  # garments that are posed at a time: a good twenty fields of each should stay in a core's cache


@dataclass(frozen=True)
class _Fields:
    """Fields of the same garments, each (N, 64, 64)."""

    @classmethod
    def blank(cls, count: int, device: torch.device) -> Self:
        """Room for the fields of some garments."""
        return cls(**{field.name: torch.empty((count, SIZE, SIZE), device=device) for field in fields(cls)})

    def __getitem__(self, rows: Tensor) -> Self:
        """Those of fewer garments."""
        return type(self)(**{name: field.index_select(0, rows) for name, field in vars(self).items()})

    def __setitem__(self, rows: slice, those: Self) -> None:
        for name, field in vars(self).items():
            field[rows] = getattr(those, name)


@dataclass(frozen=True)
class Surface(_Fields):
    """The shape of a garment as weave and pattern need it."""

    across: Tensor  # pixels along the garment's own horizontal
    along: Tensor  # pixels along its own vertical
    inner: Tensor  # about 0 at the edge and 1 deep inside
    light: Tensor  # -1 .. 1, light from the upper left on a padded shape
    folds: Tensor  # -0.5 .. 0.5, the photographed shading


@dataclass(frozen=True)
class Figure(_Fields):
    """Garments placed on the canvas."""

    coverage: Tensor  # share of the pixel that belongs to the garment, exactly 0 outside
    rim: Tensor  # the garment's outermost pixel, inside the coverage
    shadow: Tensor  # how much light the garment takes from what lies behind it


def pose(pixels: Tensor, seed: Tensor) -> tuple[Figure, Surface]:
    """Place garments (N, 28, 28) on the canvas, with size, tilt, shift and mirror image taken from the seeds."""
    figure, surface = Figure.blank(len(seed), seed.device), Surface.blank(len(seed), seed.device)
    source = _source_fields(pixels)
    done = 0
    for some in blocks(seed, _BLOCK):
        rows = slice(done, done := done + len(some))
        figure[rows], surface[rows] = _place(source[rows], some)
    return figure, surface


def _place(source: Tensor, seed: Tensor) -> tuple[Figure, Surface]:
    """Garments of which the fields at source resolution are known (N, 3, 36, 36), in their pose."""
    x, y = grid(seed.device)
    scale = between(seed, "scale", 1.66, 1.88)
    tilt = between(seed, "tilt", -8.0, 8.0) * (math.pi / 180)
    mirror = torch.where(uniform(seed, "mirror") < 0.5, -1.0, 1.0)[:, :, None]
    right = x - between(seed, "shift x", 29.5, 33.5)  # (N, 64, 64)
    down = y - between(seed, "shift y", 29.0, 32.5)
    across = (right * tilt.cos()).add_(down * tilt.sin()).mul_(mirror)
    along = (down * tilt.cos()).sub_(right * tilt.sin())
    places = torch.stack((across / scale, along / scale), dim=1).mul_(2 / _SOURCE)  # (N, 2, 64, 64), ±1 at the borders

    drawn = F.grid_sample(_double(source), places.permute(0, 2, 3, 1), mode="bilinear", padding_mode="zeros", align_corners=False)
    outline, folds, height = drawn.unbind(1)
    coverage = (outline - 0.46).mul_(2.4).add_(0.5).clamp_(0, 1)
    slope = F.pad(height, (1, 1, 1, 1))
    light = (slope[:, 1:-1, 2:] - slope[:, 1:-1, :-2]).mul_(0.8).add_(slope[:, 2:, 1:-1] - slope[:, :-2, 1:-1])
    warp = folds * 5
    surface = Surface(
        across=across.add_(warp),
        along=along.add_(warp),
        inner=(height - 0.55).div_(0.4).clamp_(0, 1),
        light=light.mul_(2.2).clamp_(-1, 1),
        folds=folds,
    )
    return Figure(coverage, rim=coverage * spread(1 - coverage), shadow=shift(height, 2, 3).clamp_(0, 1)), surface


def _source_fields(pixels: Tensor) -> Tensor:
    """Outline, folds and padded height of garments at source resolution, (N, 3, 36, 36)."""
    grey = F.pad(pixels.to(torch.float32), (_MARGIN,) * 4)
    inside = (grey > 0).to(torch.float32)
    brightest = spread(grey)
    core = 1 - spread(1 - inside)
    # A pixel on the edge is covered as far as it is as bright as its neighbours.
    outline = torch.where(core > 0, 1.0, (grey / (0.75 * brightest).clamp(min=1)).clamp_(max=1)) * inside
    outline = 0.6 * outline + 0.4 * blur(outline)
    brightness = (grey.sum((1, 2)) / inside.sum((1, 2)).clamp(min=1))[:, None, None]
    filled = torch.where(core > 0, grey, brightest)
    folds = (filled - brightness) / brightness.clamp(min=90)
    # Half of a fine pattern goes: a garment's own print must not be taken for the texture that the scene states.
    folds = (0.4 * folds + 0.6 * blur(folds)).clamp(-0.5, 0.5)
    height = outline
    for _ in range(5):
        height = blur(height)
    return torch.stack((outline, folds, height), dim=1)


def _double(fields: Tensor) -> Tensor:
    """Fields (N, C, 36, 36) at twice the resolution, along a cubic."""
    weights = _doubling(fields.device)
    return stretch(fields.flatten(0, 1), weights, weights).view(*fields.shape[:2], _FINE, _FINE)


@cache
def _doubling(device: torch.device) -> Tensor:
    """Weights that interpolate 36 values to 72 along a cubic, (72, 36)."""
    unit = torch.eye(_SOURCE)[:, None, :, None]  # each value in turn is 1
    drawn = F.interpolate(unit, size=(_FINE, 1), mode="bicubic", align_corners=False)
    return drawn[:, 0, :, 0].T.contiguous().to(device)


# Each colour's own tone and the second tone of its patterns: lighter, or darker where the colour itself is light.
_TONES = {
    "red": ((0.80, 0.09, 0.11), (0.98, 0.84, 0.80)),
    "orange": ((0.96, 0.47, 0.05), (1.00, 0.91, 0.76)),
    "yellow": ((0.97, 0.83, 0.13), (0.45, 0.36, 0.04)),
    "green": ((0.11, 0.54, 0.20), (0.80, 0.95, 0.74)),
    "blue": ((0.12, 0.29, 0.80), (0.78, 0.87, 1.00)),
    "purple": ((0.47, 0.17, 0.68), (0.89, 0.79, 0.97)),
    "pink": ((0.98, 0.52, 0.72), (0.55, 0.10, 0.33)),
    "brown": ((0.42, 0.25, 0.12), (0.86, 0.74, 0.58)),
    "black": ((0.11, 0.11, 0.12), (0.58, 0.58, 0.60)),
    "white": ((0.95, 0.95, 0.94), (0.46, 0.47, 0.50)),
}


@cache
def _tones(device: torch.device) -> Tensor:
    return torch.tensor([_TONES[name] for name in COLOURS], device=device)  # (colours, 2, 3)


def cloth(colour: Tensor, material: Tensor, pattern: Drawn, surface: Surface, seed: Tensor) -> Drawn:
    """The garment's surface over the whole canvas, (N, 3, 64, 64); the garment's coverage cuts it out."""

    def painter(draw: Callable[[Tensor, Surface, Tensor], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            base, second = _tones(seed.device)[colour[rows]][..., None, None].unbind(1)  # (N, 3, 1, 1) each
            colours = mix(base, second, pattern[rows])
            torch.clamp(draw(colours, surface[rows], seed[rows]), 0, 1, out=sheets)

        return paint

    return by_value(material, MATERIALS, {name: painter(draw) for name, draw in _SURFACES.items()}, shape=(3, SIZE, SIZE))


def _cotton(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Matt and even; only folds and soft light."""
    return apply_tone(colours, 0.93 + 0.36 * surface.light + 0.30 * surface.folds)


def _denim(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Diagonal twill, faded in the middle, with a dashed seam inside the edge."""
    twill = wave(surface.across + surface.along, 3.6)
    fade = ease(surface.inner, 0.3, 1.0) * (0.16 + 0.10 * smooth(seed, "fade", 5, 5))
    worn = over(colours, ink(seed.device, 0.85, 0.88, 0.92), fade)
    woven = apply_tone(worn, 0.84 + 0.14 * twill + 0.30 * surface.light + 0.25 * surface.folds)
    woven = over(woven, ink(seed.device, 1.0, 1.0, 1.0), (0.10 * twill).clamp_(min=0))
    seam = 1 - step((surface.inner - 0.22).abs(), 0.14, 0.14)
    dash = step(wave(surface.across - surface.along, 5.0), -0.2, 0.6)
    return over(woven, ink(seed.device, 0.96, 0.80, 0.42), seam * dash * 0.9)


def _leather(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Pebbled: round grains with dark creases between them, deep shade and broad glossy spots."""
    right = surface.across + 1.6 * smooth(seed, "grain x", 12, 12)
    down = surface.along + 1.6 * smooth(seed, "grain y", 12, 12)
    pebble = (wave(right, 4.6) + wave(0.5 * right + 0.87 * down, 4.6) + wave(0.5 * right - 0.87 * down, 4.6)) * 0.4
    tanned = apply_tone(colours, 0.76 + 0.17 * pebble + 0.50 * surface.light + 0.25 * surface.folds)
    gloss = ease(0.7 * surface.light + 0.55 * smooth(seed, "gloss", 6, 6) + 0.30 * pebble, 0.15, 0.75)
    return over(tanned, ink(seed.device, 1.0, 0.98, 0.94), gloss * 0.62)


def _silk(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Wide, flowing diagonal sheen with soft highlights."""
    drift = 7.0 * smooth(seed, "drift", 4, 4) + between(seed, "sheen", 0, 20)
    sheen = wave(0.75 * surface.across + 0.65 * surface.along + drift, 21.0)
    draped = apply_tone(colours, 0.84 + 0.24 * sheen + 0.22 * surface.light + 0.15 * surface.folds)
    return over(draped, ink(seed.device, 1.0, 1.0, 1.0), 0.42 * ease(sheen, 0.2, 1.0))


def _wool(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Columns of knitted V stitches in relief."""
    _, place = wrap(surface.across, 6.0)
    side = (place * (1 / 6.0) - 0.5).abs()
    stitch = 0.5 + 0.5 * wave(surface.along - 5.0 * side, 4.2)
    relief = (0.30 + 0.70 * stitch) * (0.45 + 0.55 * ease(0.5 - side, 0.0, 0.22))
    knitted = apply_tone(colours, 0.58 + 0.46 * relief + 0.28 * surface.light + 0.15 * surface.folds)
    return over(knitted, ink(seed.device, 1.0, 1.0, 1.0), 0.15 * relief)


def _metal(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Polished: reflections that swell to a hard white edge and fall back to dark, and a bright bevel."""
    bend = 6.0 * smooth(seed, "bend", 4, 4) + between(seed, "reflection", 0, 16)
    _, place = wrap(surface.along - 0.5 * surface.across + bend + 7.0 * surface.light, 16.0)
    swell = place * (1 / 16.0)
    cut = ease(16.0 - place, 0.0, 1.2)  # softens the fall over about a pixel
    polished = apply_tone(colours, 0.42 + (0.74 * swell * cut) + 0.22 * surface.light)
    shine = ease(swell, 0.60, 0.92) * cut + 0.7 * ease(surface.light, 0.40, 0.8)
    return over(polished, ink(seed.device, 1.0, 1.0, 1.0), (0.92 * shine).clamp_(0, 0.92))


_SURFACES: dict[str, Callable[[Tensor, Surface, Tensor], Tensor]] = {
    "cotton": _cotton,
    "denim": _denim,
    "leather": _leather,
    "silk": _silk,
    "wool": _wool,
    "metal": _metal,
}


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


def _stripes(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Level bands."""
    return step(wave(along, 9.0), softness=0.7)


def _dots(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
    """Round dots in staggered rows."""
    row, y = wrap(along, 6.5)
    _, x = wrap(across + 4 * odd(row), 8.0)
    return step(2.4 - ((x - 4) ** 2 + (y - 3.25) ** 2).sqrt_())


def _checks(across: Tensor, along: Tensor, seed: Tensor) -> Tensor:
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
    "striped": _stripes,
    "dotted": _dots,
    "checkered": _checks,
    "zigzag": _zigzag,
    "camouflage": _camouflage,
}
