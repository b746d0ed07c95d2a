"""The same passes by Triton kernels, for channels-last activations on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterfoil.acceleration import kernels

TILE, WARPS, UNROLL = 1024, 4, 4  # elements a program sums up side by side, its warps, and tiles it loads at a time
WIDE_TILE, WIDE_WARPS = 8192, 8  # and while it only maps
PROGRAMS = 2048  # enough to keep a large card busy
MOST_LOOPS = 16  # times that a program loads its tiles
CHUNKS = 64  # chunks that are read at a time when partial sums are put together


@dataclass(frozen=True)
class Layout:
    """How an activation is dealt out to programs."""

    images: int
    pixels: int
    channels: int

    @property
    def columns(self) -> int:
        """Channels, up to the next power of two."""
        return 1 << (self.channels - 1).bit_length()

    def rows(self, tile: int) -> int:
        """Pixels in a tile."""
        return max(tile // self.columns, 1)

    @property
    def loops(self) -> int:
        """Times that a program loads its tiles, for one chunk."""
        tiles = -(-self.pixels // (UNROLL * self.rows(TILE)))
        wanted = max(PROGRAMS // self.images, 1)  # chunks of an image
        return max(1, min(MOST_LOOPS, tiles // wanted))

    @property
    def size(self) -> int:
        """Pixels in a chunk."""
        return self.loops * UNROLL * self.rows(TILE)

    @property
    def chunks(self) -> int:
        """Chunks in an image."""
        return -(-self.pixels // self.size)

    def even(self, rows: int) -> bool:
        """Whether no tile hangs over."""
        return self.columns == self.channels and self.pixels % rows == 0


def layout(x: Tensor) -> Layout:
    """The layout of channels-last activations.  # (N, C, H, W)"""
    return Layout(x.shape[0], x.shape[2] * x.shape[3], x.shape[1])


def moments(x: Tensor) -> Tensor:
    """Mean and squared deviations of every channel, chunk by chunk.  # (N, C, H, W) → (N, chunks, 2, C)"""
    x, plan = _last(x), layout(x)
    partials = _partials(x, plan)
    kernels.moments_kernel[(plan.images * plan.chunks,)](x, partials, plan.pixels, plan.chunks, plan.loops, **_summing(plan))
    return partials


def join(kept: Tensor, change: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """kept + change + bias, and the moments of the sum.  # (N, C, H, W) twice, (C,)"""
    kept, change, plan = _last(kept), _last(change), layout(change)
    out, partials = torch.empty_like(change), _partials(change, plan)
    kernels.join_kernel[(plan.images * plan.chunks,)](
        kept, change, bias, out, partials, plan.pixels, plan.chunks, plan.loops, **_summing(plan)
    )
    return out, partials


def coefficients(
    partials: Tensor, gain: Tensor, bias: Tensor, before: Tensor, *, pixels: int, groups: int, epsilon: float
) -> Tensor:
    """Scale, shift, rate and offset of every channel.  # (N, chunks, 2, C) → (N, 4, C)"""
    plan = Layout(partials.shape[0], pixels, partials.shape[3])
    found = partials.new_empty(plan.images, 4, plan.channels)
    kernels.coefficients_kernel[(plan.images * groups,)](
        partials, gain, bias, before, found, pixels, plan.chunks, plan.size, epsilon, **_grouping(plan, groups)
    )
    return found


def apply(x: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """x normalised, and through SiLU if wanted.  # (N, C, H, W)"""
    x, plan = _last(x), layout(x)
    out = torch.empty_like(x)
    grid, settings = _mapping(plan)
    kernels.apply_kernel[grid](x, coefficients, out, plan.pixels, grid[0] // plan.images, SILU=silu, **settings)
    return out


def slopes(x: Tensor, gradient: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """Sums of the gradient before the SiLU, and of it times x normalised, chunk by chunk.  # → (N, chunks, 2, C)"""
    x, gradient, plan = _last(x), _last(gradient), layout(x)
    partials = _partials(x, plan)
    kernels.slopes_kernel[(plan.images * plan.chunks,)](
        x, gradient, coefficients, partials, plan.pixels, plan.chunks, plan.loops, SILU=silu, **_summing(plan)
    )
    return partials


def slope_coefficients(partials: Tensor, gain: Tensor, coefficients: Tensor, *, pixels: int, groups: int) -> Tensor:
    """What the group's mean and spread take off the gradient: x · first + second.  # → (N, 2, C)"""
    plan = Layout(partials.shape[0], pixels, partials.shape[3])
    found = partials.new_empty(plan.images, 2, plan.channels)
    kernels.slope_coefficients_kernel[(plan.images * groups,)](
        partials, gain, coefficients, found, pixels, plan.chunks, **_grouping(plan, groups)
    )
    return found


def back(x: Tensor, gradient: Tensor, coefficients: Tensor, lean: Tensor, *, skip: Tensor | None, silu: bool) -> Tensor:
    """The gradient of x, with that of the way around (`skip`) added.  # → (N, C, H, W)"""
    x, gradient, plan = _last(x), _last(gradient), layout(x)
    skip = None if skip is None else _last(skip)
    out = torch.empty_like(gradient)
    grid, settings = _mapping(plan)
    kernels.back_kernel[grid](
        x, gradient, coefficients, lean, gradient if skip is None else skip, out, plan.pixels, grid[0] // plan.images,
        SILU=silu, SKIP=skip is not None, **settings,
    )  # fmt: skip
    return out


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _partials(x: Tensor, plan: Layout) -> Tensor:
    return torch.empty(plan.images, plan.chunks, 2, plan.channels, dtype=torch.float32, device=x.device)


def _summing(plan: Layout) -> dict[str, Any]:
    rows = plan.rows(TILE)
    even = plan.even(plan.size)
    return {"C": plan.channels, "ROWS": rows, "COLUMNS": plan.columns, "EVEN": even, "UNROLL": UNROLL, "num_warps": WARPS}


def _mapping(plan: Layout) -> tuple[tuple[int], dict[str, Any]]:
    rows = plan.rows(WIDE_TILE)
    grid = (plan.images * -(-plan.pixels // rows),)
    return grid, {"C": plan.channels, "ROWS": rows, "COLUMNS": plan.columns, "EVEN": plan.even(rows), "num_warps": WIDE_WARPS}


def _grouping(plan: Layout, groups: int) -> dict[str, Any]:
    width = plan.channels // groups
    return {"C": plan.channels, "WIDTH": width, "LANES": 1 << (width - 1).bit_length(), "CHUNKS": CHUNKS, "num_warps": 4}
