"""Passes over activations: in plain PyTorch here, by Triton kernels in `fused` where these run, and the choice between the two.

What is here is what the kernels have to agree with, and what runs where they can't.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import one_line

log = logging.getLogger(__name__)

FUSION = "TRITON_DEFAULT_FP_FUSION"
"""Whether a product and a sum are rounded once. It is what kernels were measured with; releases of Triton differ, or warn."""


def passes(x: Tensor) -> ModuleType:
    """The module with the passes for activations like these: Triton's on a GPU where its kernels run, else plain PyTorch."""
    return _fused() if x.is_cuda and has_triton(x.device) else sys.modules[__name__]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels can be built and run on a GPU, tried out once.

    It comes with torch on Linux, but needs a C compiler, and a GPU that its release still knows.
    """
    return _tried(device if device.index is not None else torch.device(device.type, torch.cuda.current_device()))


@cache
def _tried(device: torch.device) -> bool:
    problem = _problem(device)
    if problem:
        log.warning("Triton kernels unavailable on %s, using PyTorch: %s", device, problem)
    return not problem


def _problem(device: torch.device) -> str:
    """Why the kernels don't run, in a line; nothing if they do."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    os.environ.setdefault(FUSION, "1")
    try:
        return "" if _agree(_fused(), device) else "a pass came out wrong"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, a linker or a driver may say
        return one_line(error)


def _agree(other: ModuleType, device: torch.device) -> bool:
    """Whether passes on a device give what the ones here do: sums, and a product on tensor cores."""
    x = (torch.arange(2 * 16 * 64) % 7 - 3.0).view(2, 16, 8, 8).contiguous(memory_format=torch.channels_last)
    weight, bias = (torch.arange(3 * 16 * 9) % 5 - 2.0).view(3, 16, 3, 3) / 8, torch.arange(3.0)
    found = coefficients(moments(x), torch.ones(16), torch.zeros(16), torch.zeros(16), pixels=64, groups=4, epsilon=1e-6)
    there = [each.to(device) for each in (x, found, weight, bias)]
    summed = other.moments(there[0].contiguous(memory_format=torch.channels_last))
    pairs = ((summed[:, 0, 0].cpu(), moments(x)[:, 0, 0]), (other.ending(*there).cpu(), ending(x, found, weight, bias)))
    return all(torch.allclose(mine, wanted, rtol=1e-2, atol=1e-2) for mine, wanted in pairs)


@cache
def _fused() -> ModuleType:
    from counterfoil.parts.fast import fused  # imports triton, which takes a while and which a CPU does not need

    return fused


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
