"""Filters that resize pictures, as products with matrices: on a GPU those are faster than PyTorch's kernels, and in one order.

The kernels' gradients are added up in whatever order threads come, so that no two are the same to the last digit.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional


def resampled(images: Tensor, size: tuple[int, int], *, mode: str, antialias: bool) -> Tensor:
    """What `functional.interpolate` makes of images, differentiably.  # (N, C, H, W) → (N, C, *size)"""
    height, width = images.shape[-2:]
    with torch.autocast(images.device.type, enabled=False):
        if width != size[1]:
            images = images @ _filter(width, size[1], mode, antialias, images.device).mT
        if height != size[0]:
            images = _filter(height, size[0], mode, antialias, images.device) @ images
    return images


def _filter(before: int, after: int, mode: str, antialias: bool, device: torch.device) -> Tensor:
    """Kept for the next call; the compiler looks through a cache, so it gets it anew.  # (after, before)"""
    return (_made if torch.compiler.is_compiling() else _kept)(before, after, mode, antialias, device)


@lru_cache(maxsize=64)
def _kept(before: int, after: int, mode: str, antialias: bool, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():  # it may later be needed where gradients are taken
        return _made(before, after, mode, antialias, device)


def _made(before: int, after: int, mode: str, antialias: bool, device: torch.device) -> Tensor:
    """How much of each place goes into each new one: what becomes of pictures that are white at one place each."""
    places = torch.eye(before, device=device)[None, None]
    return functional.interpolate(places, (after, before), mode=mode, align_corners=False, antialias=antialias)[0, 0]
