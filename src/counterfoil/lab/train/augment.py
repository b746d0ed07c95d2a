"""Strong augmentation of a batch, each picture by its own random amounts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def augment(images: Tensor) -> Tensor:
    """Moved, recoloured, blurred, noisy and partly covered versions of the pictures.  # (N, 3, H, W) in [0, 1]"""
    images = _move(images)
    images = _sometimes(0.8, _recolour(images), images)
    images = _sometimes(0.3, _soften(images), images)
    images = _sometimes(0.5, images + torch.randn_like(images) * _amount(images, 0.02, 0.2), images)
    images = _sometimes(0.1, 1 - images, images)
    images = _sometimes(0.5, _cover(images), images)
    return images.clamp(0, 1)


def _move(images: Tensor) -> Tensor:
    """Turned, scaled, shifted and mirrored; the edge is continued outwards."""
    count = len(images)
    angle = _numbers(count, -0.35, 0.35, images)
    scale = _numbers(count, 0.8, 1.3, images)
    mirror = torch.where(torch.rand(count, device=images.device) < 0.5, -1.0, 1.0)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    shift_x, shift_y = _numbers(count, -0.2, 0.2, images), _numbers(count, -0.2, 0.2, images)
    rows = (torch.stack([cosine * mirror, -sine, shift_x], 1), torch.stack([sine * mirror, cosine, shift_y], 1))
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _recolour(images: Tensor) -> Tensor:
    """Channels mixed at random, then contrast, brightness and gamma changed."""
    count = len(images)
    mix = torch.eye(3, device=images.device) + 0.35 * torch.randn(count, 3, 3, device=images.device)
    mix = mix / mix.sum(dim=2, keepdim=True).clamp(min=0.5)
    mixed = torch.einsum("nij,njhw->nihw", mix, images)
    contrast, brightness = _amount(images, 0.5, 1.6), _amount(images, -0.25, 0.25)
    changed = ((mixed - 0.5) * contrast + 0.5 + brightness).clamp(1e-3, 1)
    return changed ** _amount(images, 0.6, 1.6)


def _soften(images: Tensor) -> Tensor:
    """Blurred by shrinking and growing back."""
    small = F.interpolate(images, scale_factor=0.5, mode="area")
    return F.interpolate(small, size=images.shape[-2:], mode="bilinear", align_corners=False)


def _cover(images: Tensor) -> Tensor:
    """A rectangle of the picture covered with one colour."""
    count, _, height, width = images.shape
    top, left = _amount(images, 0, height - 8), _amount(images, 0, width - 8)
    tall, wide = _amount(images, 6, height / 3), _amount(images, 6, width / 3)
    row = torch.arange(height, device=images.device).view(1, 1, -1, 1)
    column = torch.arange(width, device=images.device).view(1, 1, 1, -1)
    covered = (row >= top) & (row < top + tall) & (column >= left) & (column < left + wide)
    return torch.where(covered, torch.rand(count, 3, 1, 1, device=images.device), images)


def _sometimes(share: float, changed: Tensor, images: Tensor) -> Tensor:
    chosen = torch.rand(len(images), 1, 1, 1, device=images.device) < share
    return torch.where(chosen, changed, images)


def _numbers(count: int, low: float, high: float, like: Tensor) -> Tensor:
    return low + (high - low) * torch.rand(count, device=like.device)


def _amount(images: Tensor, low: float, high: float) -> Tensor:
    return _numbers(len(images), low, high, images).view(-1, 1, 1, 1)
