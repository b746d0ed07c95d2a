"""Weather: fog, frost and snow, painted from random patterns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.generators import draws
from counterfoil.parts.generators.corruptions import levels
from counterfoil.parts.generators.corruptions.blur import convolve, streak
from counterfoil.parts.generators.corruptions.colour import luma

FROST_PICTURE = (1.0, 0.95, 0.8, 0.7, 0.65, 0.6)
FROST_ICE = (0.0, 0.35, 0.5, 0.6, 0.65, 0.75)
ICE = (0.86, 0.94, 1.0)
SNOW_COVER = (0.0, 0.04, 0.06, 0.08, 0.10, 0.13)  # share of the grid that holds a flake
SNOW_WHITE = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35)  # how far the scene itself whitens


def fog(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Clouds between the camera and the scene; at most a quarter of the picture's own light is left."""
    density = 3 * severity
    light = 0.45 + 0.55 * draws.plasma(seeds, "fog", size=_size(images))  # fog scatters light: its thin places are grey
    return (images + density * light) / (1 + density)


def frost(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Ice on the window: needles of frost, thickest at the rim and in patches."""
    ice = _needles(seeds, _size(images)) * torch.tensor(ICE, device=images.device).reshape(1, 3, 1, 1)
    return images * levels.along(severity, FROST_PICTURE) + ice * levels.along(severity, FROST_ICE)


def snow(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Falling flakes, small and large, in a scene that whitens. Flakes appear level by level, pictures are blended between."""
    angles = draws.between(seeds, "snow angle", 50, 130).flatten()

    def fall(image: Tensor, level: int, row: int) -> Tensor:
        flakes = _flakes(seeds[row : row + 1], SNOW_COVER[level], size=_size(image), side=levels.pixels(image, 1.0))
        falling = convolve(flakes, streak(levels.pixels(image, 8.0), angles[row]))
        whitened = torch.lerp(image, torch.maximum(image, luma(image) * 0.6 + 0.4), SNOW_WHITE[level])
        return whitened + falling

    return levels.blend(images, severity, fall)


def _flakes(seed: Tensor, cover: float, *, size: tuple[int, int], side: float) -> Tensor:
    """Soft white spots in two sizes; a larger cover keeps the spots of a smaller one and adds to them.  # → (1, 1, *size)"""
    total = torch.zeros(1, 1, *size, device=seed.device)
    for name, grain in (("small flakes", 2.5), ("large flakes", 5.0)):
        pitch = max(grain * side, 1.0)
        order = draws.uniform(seed, name, 1, max(round(size[0] / pitch), 2), max(round(size[1] / pitch), 2))
        spots = ((order - 1 + cover) / cover).clamp(0, 1).sqrt()
        total = total + F.interpolate(spots, size=size, mode="bilinear", align_corners=False)
    return total


def _needles(seeds: Tensor, size: tuple[int, int]) -> Tensor:
    """Frost in [0, 1]: the ridges of smooth noise, crossed at several grains, where a coarser cloud lets it grow."""
    ridges = torch.zeros(len(seeds), 1, *size, device=seeds.device)
    for octave, knots in enumerate((9, 17, 33, 65)):
        noise = draws.smooth(seeds, f"frost {octave}", knots=min(knots, *size), size=size)
        ridges = ridges + 0.8**octave * (1 - 2.5 * noise.abs()).clamp(0, 1)
    down = torch.linspace(-1, 1, size[0], device=seeds.device).abs()[:, None]
    across = torch.linspace(-1, 1, size[1], device=seeds.device).abs()
    rim = torch.maximum(down, across) ** 2
    growth = draws.plasma(seeds, "frost growth", size=size, octaves=4) + 0.6 * rim
    return (ridges * 0.55 + 0.25).clamp(0, 1) * (growth * 1.3 - 0.25).clamp(0, 1)


def _size(images: Tensor) -> tuple[int, int]:
    return images.shape[-2], images.shape[-1]
