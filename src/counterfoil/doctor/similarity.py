"""How alike two pictures are: PSNR, and SSIM (Wang, Bovik, Sheikh and Simoncelli, 2004) over RGB."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, SIGMA = 11, 1.5  # of the paper's Gaussian window
_C1, _C2 = 0.01**2, 0.03**2  # for values in [0, 1]


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels; at most 100, where pictures are equal.  # (N, 3, H, W) twice → (N,)"""
    error = (first - second).square().flatten(1).mean(1)
    return -10 * error.clamp_min(1e-10).log10()


def ssim(first: Tensor, second: Tensor) -> Tensor:
    """Structural similarity: 1 for equal pictures. Only whole windows count.  # (N, 3, H, W) twice → (N,)"""
    window = _window(min(WINDOW, first.shape[-1], first.shape[-2]), first)
    mean_1, mean_2 = _blurred(first, window), _blurred(second, window)
    var_1 = _blurred(first.square(), window) - mean_1.square()
    var_2 = _blurred(second.square(), window) - mean_2.square()
    both = _blurred(first * second, window) - mean_1 * mean_2
    light = (2 * mean_1 * mean_2 + _C1) / (mean_1.square() + mean_2.square() + _C1)
    structure = (2 * both + _C2) / (var_1 + var_2 + _C2)
    return (light * structure).flatten(1).mean(1)


def _window(size: int, like: Tensor) -> Tensor:
    places = torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
    bell = torch.exp(-places.square() / (2 * SIGMA**2))
    return bell / bell.sum()


def _blurred(images: Tensor, window: Tensor) -> Tensor:
    channels = images.shape[1]
    rows = F.conv2d(images, window.expand(channels, 1, 1, -1), groups=channels)
    return F.conv2d(rows, window[:, None].expand(channels, 1, -1, 1), groups=channels)
