"""The passes over activations in plain PyTorch: what the Triton kernels have to agree with, and what runs where they can't."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def moments(x: Tensor) -> Tensor:
    """Mean and squared deviations of every channel over the pixels, as one chunk.  # (N, C, H, W) → (N, 1, 2, C)"""
    values = x.float().flatten(2)  # (N, C, P)
    mean = values.mean(2)
    spread = (values - mean[..., None]).square().sum(2)
    return torch.stack([mean, spread], 1)[:, None]


def join(kept: Tensor, change: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """kept + change + bias, and the moments of the sum.  # (N, C, H, W) twice, (C,)"""
    total = (kept.float() + change.float() + bias[:, None, None]).to(change.dtype)
    return total, moments(total)


def coefficients(
    partials: Tensor, gain: Tensor, bias: Tensor, before: Tensor, *, pixels: int, groups: int, epsilon: float
) -> Tensor:
    """Scale, shift, rate and offset of every channel.  # (N, 1, 2, C) → (N, 4, C)"""
    mean, spread = partials[:, 0].unbind(1)  # (N, C) each
    mean = (mean + before).unflatten(1, (groups, -1))  # (N, G, C / G)
    centre = mean.mean(2, keepdim=True)
    variance = (spread.unflatten(1, (groups, -1)) / pixels + (mean - centre).square()).mean(2, keepdim=True)
    rate = (variance + epsilon).rsqrt().expand_as(mean).flatten(1)  # (N, C)
    offset = (before - centre.expand_as(mean).flatten(1)) * rate
    return torch.stack([gain * rate, bias + offset * gain, rate, offset], 1)


def apply(x: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """x normalised, and through SiLU if wanted.  # (N, C, H, W)"""
    scale, shift = (each[..., None, None] for each in coefficients.unbind(1)[:2])
    result = x.float() * scale + shift
    return (F.silu(result) if silu else result).to(x.dtype)


def ending(x: Tensor, coefficients: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x normalised, through SiLU and a 3×3 convolution to three colours.  # (3, C, 3, 3), (3,) → (N, 3, H, W) float32"""
    return F.conv2d(apply(x, coefficients, silu=True), weight, padding=1).float() + bias[:, None, None]


def ending_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of what `ending` convolves.  # (N, 3, H, W), (3, C, 3, 3) → (N, C, H, W)"""
    return F.conv_transpose2d(gradient.to(weight.dtype), weight, padding=1)


def slopes(x: Tensor, gradient: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """Sums over the pixels of the gradient before the SiLU, and of it times x normalised.  # → (N, 1, 2, C)"""
    rate, offset = (each[..., None, None] for each in coefficients.unbind(1)[2:])
    slope = _before_silu(x, gradient, coefficients, silu=silu)
    along = slope * (x.float() * rate + offset)
    return torch.stack([slope.sum((2, 3)), along.sum((2, 3))], 1)[:, None]


def slope_coefficients(partials: Tensor, gain: Tensor, coefficients: Tensor, *, pixels: int, groups: int) -> Tensor:
    """What the group's mean and spread take off the gradient: x · first + second.  # → (N, 2, C)"""
    count = pixels * len(gain) // groups
    once, along = (
        (each * gain).unflatten(1, (groups, -1)).sum(2, keepdim=True).expand(-1, -1, len(gain) // groups).flatten(1) / count
        for each in partials[:, 0].unbind(1)
    )  # (N, C) each
    rate, offset = coefficients.unbind(1)[2:]
    return torch.stack([-rate * rate * along, -rate * (once + offset * along)], 1)


def back(x: Tensor, gradient: Tensor, coefficients: Tensor, lean: Tensor, *, skip: Tensor | None, silu: bool) -> Tensor:
    """The gradient of x, with that of the way around (`skip`) added.  # → (N, C, H, W)"""
    scale = coefficients[:, 0, :, None, None]
    total = _before_silu(x, gradient, coefficients, silu=silu) * scale
    total = total + x.float() * lean[:, 0, :, None, None] + lean[:, 1, :, None, None]
    return (total if skip is None else total + skip.float()).to(gradient.dtype)


def _before_silu(x: Tensor, gradient: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    slope = gradient.float()
    if not silu:
        return slope
    scale, shift = (each[..., None, None] for each in coefficients.unbind(1)[:2])
    result = x.float() * scale + shift
    share = result.sigmoid()
    return slope * share * (1 + result * (1 - share))
