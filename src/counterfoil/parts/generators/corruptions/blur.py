"""Blur: defocus, glass, motion and zoom. All but zoom are blended between levels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.generators import draws
from counterfoil.parts.generators.corruptions import levels
from counterfoil.parts.generators.corruptions.geometry import centred, sample

DEFOCUS_RADIUS = (0.0, 3.0, 4.0, 6.0, 8.0, 10.0)
MOTION_LENGTH = (0.0, 8.0, 12.0, 15.0, 19.0, 25.0)
GLASS_REACH = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)
GLASS_SPREAD = (0.0, 0.7, 0.9, 1.0, 1.1, 1.5)
ZOOMS = 12  # pictures averaged into a zoom blur


def defocus_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The disc of a lens out of focus, up to a radius of 10 pixels."""

    def defocus(image: Tensor, level: int, row: int) -> Tensor:
        radius = levels.pixels(image, DEFOCUS_RADIUS[level])
        distance = _offsets(radius, image.device).norm(dim=0)
        return convolve(image, (radius + 1 - distance).clamp(0, 1))  # fades over one pixel

    return levels.blend(images, severity, defocus)


def motion_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The streak of a moving camera, up to 25 pixels long, within 45 degrees of level; the seed gives the angle."""
    angles = draws.between(seeds, "motion angle", -45, 45).flatten()

    def shake(image: Tensor, level: int, row: int) -> Tensor:
        return convolve(image, streak(levels.pixels(image, MOTION_LENGTH[level]), angles[row]))

    return levels.blend(images, severity, shake)


def streak(length: float, angle: Tensor) -> Tensor:
    """The kernel of a straight line at an angle in degrees; it fades over one pixel at both ends.  # (K, K)"""
    down, right = _offsets(length / 2, angle.device).unbind()
    cosine, sine = torch.deg2rad(angle).cos(), torch.deg2rad(angle).sin()
    onward, aside = (right * cosine + down * sine).abs(), (down * cosine - right * sine).abs()
    return (length / 2 + 1 - onward).clamp(0, 1) * (1 - aside).clamp(0, 1)


def glass_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Frosted glass: every pixel is taken from up to 4 pixels away, then a little Gaussian blur."""
    away = draws.uniform(seeds, "glass", 2, *images.shape[-2:]) * 2 - 1

    def scatter(image: Tensor, level: int, row: int) -> Tensor:
        moved = sample(image, centred(image) + levels.pixels(image, GLASS_REACH[level]) * away[row])
        spread = levels.pixels(image, GLASS_SPREAD[level])
        distance = _offsets(2.5 * spread, image.device).norm(dim=0)
        return convolve(moved, torch.exp(-0.5 * (distance / spread) ** 2))

    return levels.blend(images, severity, scatter)


def zoom_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A lens zoomed during the exposure, up to 1.31 times: the mean of pictures at zooms from 1 up."""
    grid, total = centred(images), torch.zeros_like(images)
    for step in range(ZOOMS):
        total = total + sample(images, grid / (1 + 0.31 * severity * step / (ZOOMS - 1)))
    return total / ZOOMS


def convolve(image: Tensor, kernel: Tensor) -> Tensor:
    """One picture, channel by channel, with a kernel made to sum to one; mirrored at the borders.  # (1, C, H, W), (K, K)"""
    reach = kernel.shape[-1] // 2
    channels = F.pad(image, (reach, reach, reach, reach), mode="reflect").transpose(0, 1)  # (C, 1, H + 2 reach, W + 2 reach)
    return F.conv2d(channels, (kernel / kernel.sum())[None, None]).transpose(0, 1)


def _offsets(reach: float, device: torch.device) -> Tensor:
    """Rows and columns of a kernel, counted from its middle: down, right.  # (2, K, K)"""
    radius = math.ceil(reach)
    span = torch.arange(-radius, radius + 1, device=device, dtype=torch.float32)
    return torch.stack(torch.meshgrid(span, span, indexing="ij"))
