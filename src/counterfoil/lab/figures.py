"""A garment in its pose: which pixels it covers, how light falls on it, and coordinates that move with the cloth."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.lab.canvas import SIZE, blurred, grid, moved, spread
from counterfoil.lab.groups import blocks
from counterfoil.lab.randomness import between, stretched, uniform

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
    """What weave and pattern need to know of a garment."""

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
        figure[rows], surface[rows] = _posed(source[rows], some)
    return figure, surface


def _posed(source: Tensor, seed: Tensor) -> tuple[Figure, Surface]:
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

    drawn = F.grid_sample(
        _doubled(source), places.permute(0, 2, 3, 1), mode="bilinear", padding_mode="zeros", align_corners=False
    )
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
    return Figure(coverage, rim=coverage * spread(1 - coverage), shadow=moved(height, 2, 3).clamp_(0, 1)), surface


def _source_fields(pixels: Tensor) -> Tensor:
    """Outline, folds and padded height of garments at source resolution, (N, 3, 36, 36)."""
    grey = F.pad(pixels.to(torch.float32), (_MARGIN,) * 4)
    inside = (grey > 0).to(torch.float32)
    brightest = spread(grey)
    core = 1 - spread(1 - inside)
    # A pixel on the edge is covered as far as it is as bright as its neighbours.
    outline = torch.where(core > 0, 1.0, (grey / (0.75 * brightest).clamp(min=1)).clamp_(max=1)) * inside
    outline = 0.6 * outline + 0.4 * blurred(outline)
    brightness = (grey.sum((1, 2)) / inside.sum((1, 2)).clamp(min=1))[:, None, None]
    filled = torch.where(core > 0, grey, brightest)
    folds = (filled - brightness) / brightness.clamp(min=90)
    # Half of a fine pattern goes: a garment's own print must not be taken for the texture that the scene states.
    folds = (0.4 * folds + 0.6 * blurred(folds)).clamp(-0.5, 0.5)
    height = outline
    for _ in range(5):
        height = blurred(height)
    return torch.stack((outline, folds, height), dim=1)


def _doubled(fields: Tensor) -> Tensor:
    """Fields (N, C, 36, 36) at twice the resolution, along a cubic."""
    weights = _doubling(fields.device)
    return stretched(fields.flatten(0, 1), weights, weights).view(*fields.shape[:2], _FINE, _FINE)


@cache
def _doubling(device: torch.device) -> Tensor:
    """Weights that interpolate 36 values to 72 along a cubic, (72, 36)."""
    unit = torch.eye(_SOURCE)[:, None, :, None]  # each value in turn is 1
    drawn = F.interpolate(unit, size=(_FINE, 1), mode="bicubic", align_corners=False)
    return drawn[:, 0, :, 0].T.contiguous().to(device)
