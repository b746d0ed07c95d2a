"""The same passes by Triton kernels, for channels-last activations on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from counterfoil.parts.fast import kernels

# Found best on an H200.
TILE, WIDE_TILE = 1024, 512  # elements that a program sums up side by side, for up to 128 channels and for more
WARPS, UNROLL = 4, 8  # its warps, and tiles it loads at a time
MAP_TILE, MAP_WARPS = 8192, 4  # elements of a program that maps one activation
BACK_TILE, BACK_WARPS = 2048, 4  # and several
PROGRAMS = 2048  # enough to keep a large card busy
MOST_LOOPS = 16  # times that a program loads its tiles
END_ROWS, END_WARPS = 128, 4  # pixels of a tile at the decoder's end, and its warps
GATHERED, AROUND = 512, 128  # pixels of a program that adds planes up, and of one that looks around
EDGE_TILE, EDGE_WARPS = 4096, 4  # elements of a program that raises edges, and its warps
GATE_BLOCK, GATE_WARPS = 2048, 4
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
    def summed(self) -> int:
        """Pixels in a tile that is summed up."""
        return self.rows(TILE if self.columns <= 128 else WIDE_TILE)

    @property
    def loops(self) -> int:
        """Times that a program loads its tiles, for one chunk."""
        tiles = -(-self.pixels // (UNROLL * self.summed))
        wanted = max(PROGRAMS // self.images, 1)  # chunks of an image
        return max(1, min(MOST_LOOPS, tiles // wanted))

    @property
    def size(self) -> int:
        """Pixels in a chunk."""
        return self.loops * UNROLL * self.summed

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
    grid, settings = _mapping(plan, MAP_TILE, MAP_WARPS)
    kernels.apply_kernel[grid](x, coefficients, out, plan.pixels, grid[0] // plan.images, SILU=silu, **settings)
    return out


def ending(x: Tensor, coefficients: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x normalised, through SiLU and a 3×3 convolution to three colours.  # (3, C, 3, 3), (3,) → (N, 3, H, W) float32"""
    x, plan = _last(x), layout(x)
    planes = torch.empty(plan.images, 27, plan.pixels, dtype=torch.float32, device=x.device)
    chunks = -(-plan.pixels // END_ROWS)
    columns = max(plan.columns, 16)  # the least that tensor cores multiply
    kernels.spread_kernel[(plan.images * chunks,)](
        x, coefficients, _taps(weight).T.contiguous(), planes, plan.pixels, chunks, C=plan.channels, ROWS=END_ROWS,
        COLUMNS=columns, EVEN=columns == plan.channels and plan.pixels % END_ROWS == 0, num_warps=END_WARPS,
    )  # fmt: skip
    height, width = x.shape[2:]
    out = torch.empty(plan.images, 3, height, width, dtype=torch.float32, device=x.device)
    chunks = -(-plan.pixels // GATHERED)
    kernels.gather_kernel[(plan.images * chunks,)](planes, bias, out, height, width, chunks, SIZE=GATHERED, num_warps=4)
    return out


def ending_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of what `ending` convolves.  # (N, 3, H, W), (3, C, 3, 3) → (N, C, H, W)"""
    images, _, height, width = gradient.shape
    around = torch.empty(images * height * width, 32, dtype=weight.dtype, device=gradient.device)
    chunks = -(-height * width // AROUND)
    planes = gradient.float().contiguous()
    kernels.around_kernel[(images * chunks,)](planes, around, height, width, chunks, SIZE=AROUND, num_warps=4)
    return (around @ _taps(weight)).view(images, height, width, -1).permute(0, 3, 1, 2)


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
        partials, gain, coefficients, found, pixels, partials.shape[1], **_grouping(plan, groups)
    )
    return found


def back(x: Tensor, gradient: Tensor, coefficients: Tensor, lean: Tensor, *, skip: Tensor | None, silu: bool) -> Tensor:
    """The gradient of x, with that of the way around (`skip`) added.  # → (N, C, H, W)"""
    x, gradient, plan = _last(x), _last(gradient), layout(x)
    skip = None if skip is None else _last(skip)
    out = torch.empty_like(gradient)
    grid, settings = _mapping(plan, BACK_TILE, BACK_WARPS)
    kernels.back_kernel[grid](
        x, gradient, coefficients, lean, gradient if skip is None else skip, out, plan.pixels, grid[0] // plan.images,
        SILU=silu, SKIP=skip is not None, **settings,
    )  # fmt: skip
    return out


def gated(x: Tensor) -> Tensor:
    """One half times GELU of the other.  # (…, 2 × W) → (…, W)"""
    x = x.contiguous()
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out.numel(), GATE_BLOCK),)
    kernels.gate_kernel[grid](x, out, out.numel(), out.shape[-1], BLOCK=GATE_BLOCK, num_warps=GATE_WARPS)
    return out


def add_edge(x: Tensor, edge: Tensor) -> Tensor:
    """x with its outermost pixels raised, in place.  # (N, C, h, w) channels-last, (N, E, C)"""
    images, channels, height, width = x.shape
    columns = triton.next_power_of_2(channels)
    rows = max(EDGE_TILE // columns, 1)
    chunks = -(-edge.shape[1] // rows)
    kernels.edge_kernel[(images * chunks,)](
        x, edge, height, width, edge.shape[1], chunks, *edge.stride(),
        C=channels, ROWS=rows, COLUMNS=columns, num_warps=EDGE_WARPS,
    )  # fmt: skip
    return x


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _partials(x: Tensor, plan: Layout) -> Tensor:
    return torch.empty(plan.images, plan.chunks, 2, plan.channels, dtype=torch.float32, device=x.device)


def _summing(plan: Layout) -> dict[str, Any]:
    even = plan.even(plan.size)
    return {"C": plan.channels, "ROWS": plan.summed, "COLUMNS": plan.columns, "EVEN": even, "UNROLL": UNROLL, "num_warps": WARPS}


def _mapping(plan: Layout, tile: int, warps: int) -> tuple[tuple[int], dict[str, Any]]:
    rows = plan.rows(tile)
    grid = (plan.images * -(-plan.pixels // rows),)
    return grid, {"C": plan.channels, "ROWS": rows, "COLUMNS": plan.columns, "EVEN": plan.even(rows), "num_warps": warps}


def _grouping(plan: Layout, groups: int) -> dict[str, Any]:
    width = plan.channels // groups
    return {"C": plan.channels, "WIDTH": width, "LANES": 1 << (width - 1).bit_length(), "CHUNKS": CHUNKS, "num_warps": 4}


def _taps(weight: Tensor) -> Tensor:
    """One row for every tap and colour, up to the next power of two.  # (3, C, 3, 3) → (32, C)"""
    return F.pad(weight.permute(2, 3, 0, 1).reshape(27, -1), (0, 0, 0, 5)).contiguous()
