"""Geometry: rotation, translation, scaling and elastic deformation. What comes in from outside is the picture mirrored."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.generators import draws


def rotation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A turn about the middle by up to 30 degrees, to the side that the seed gives."""
    angle = severity * draws.sign(seeds, "rotation") * math.radians(30)
    across, down = centred(images).split(1, dim=1)
    turned = torch.cat([across * angle.cos() - down * angle.sin(), across * angle.sin() + down * angle.cos()], dim=1)
    return sample(images, turned)


def translation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A shift by up to a fifth of the picture, in the direction that the seed gives."""
    angle = draws.between(seeds, "translation", -math.pi, math.pi)
    shift = severity * 0.2 * min(images.shape[-2:])
    return sample(images, centred(images) + shift * torch.cat([angle.cos(), angle.sin()], dim=1))


def scaling(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The picture larger or smaller, as the seed says, by up to 1.6 times."""
    return sample(images, centred(images) * torch.exp(severity * draws.sign(seeds, "scaling") * math.log(1.6)))


def elastic(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The picture as on crumpled cloth: smooth random displacements, wide ones and narrow ones."""
    size = (images.shape[-2], images.shape[-1])
    wide = draws.smooth(seeds, "elastic wide", knots=5, size=size, channels=2)
    narrow = draws.smooth(seeds, "elastic narrow", knots=min(13, *size), size=size, channels=2)
    return sample(images, centred(images) + severity * min(size) * (0.05 * wide + 0.03 * narrow))


def centred(images: Tensor) -> Tensor:
    """Where every pixel is, counted in pixels from the picture's middle: across, down.  # → (1, 2, H, W)"""
    height, width = images.shape[-2:]
    down = torch.arange(height, device=images.device, dtype=torch.float32) - (height - 1) / 2
    across = torch.arange(width, device=images.device, dtype=torch.float32) - (width - 1) / 2
    return torch.stack(torch.meshgrid(across, down, indexing="xy"))[None]


def sample(images: Tensor, places: Tensor) -> Tensor:
    """The pictures at other places, given as `centred` gives them.  # (N, 3, H, W), (N, 2, H, W)"""
    height, width = images.shape[-2:]
    half = torch.tensor([width / 2, height / 2], device=images.device).reshape(1, 2, 1, 1)
    grid = (places / half).permute(0, 2, 3, 1).expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
