"""Filters that resize images, as products with matrices, for a GPU.

PyTorch's own kernels add up gradients there in whatever order threads come, and say so: the last digit may be another each time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.parts.constants import kept


def resampled(images: Tensor, size: tuple[int, int], *, mode: str, antialias: bool) -> Tensor:
    """Resize images as `functional.interpolate` does, differentiably.  # (N, C, H, W) → (N, C, *size)"""
    height, width = images.shape[-2:]
    with torch.autocast(images.device.type, enabled=False):
        if width != size[1]:
            images = images @ _filter(width, size[1], mode, antialias, images.device).mT
        if height != size[0]:
            images = _filter(height, size[0], mode, antialias, images.device) @ images
    return images


@kept
def _filter(before: int, after: int, mode: str, antialias: bool, device: torch.device) -> Tensor:
    """The weight of each place in each new one: images that are white at one place each, resized."""
    places = torch.eye(before, device=device)[None, None]
    return functional.interpolate(places, (after, before), mode=mode, align_corners=False, antialias=antialias)[0, 0]
