"""Passes over activations: Triton kernels for channels-last activations on a GPU where these run, else plain PyTorch.

Plain PyTorch is what the kernels have to agree with. Sums come in chunks of pixels; plain PyTorch gives one chunk per image.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import one_line

log = logging.getLogger(__name__)

FUSION = "TRITON_DEFAULT_FP_FUSION"
"""Round a product and a sum once. It is what kernels were measured with; releases of Triton differ, or warn."""

# Found best on an H200.
TILE, WIDE_TILE = 1024, 512  # elements that a program sums up side by side, for up to 128 channels and for more
WARPS, UNROLL = 4, 8  # its warps, and tiles it loads at a time
MAP_TILE, MAP_WARPS = 8192, 4  # elements of a program that maps one activation
BACK_TILE, BACK_WARPS = 2048, 4  # and several
PROGRAMS = 2048  # enough to keep a large GPU busy
MOST_LOOPS = 16  # times that a program loads its tiles
COLOUR_ROWS, COLOUR_WARPS = 128, 4  # pixels of a tile at the decoder's end, and its warps
GATHERED, AROUND = 512, 128  # pixels of a program that adds planes up, and of one that looks around
EDGE_TILE, EDGE_WARPS = 4096, 4  # elements of a program that raises edges, and its warps
GATE_BLOCK, GATE_WARPS = 2048, 4
CHUNKS = 64  # chunks that are read at a time when partial sums are put together

known_devices: dict[torch.device, bool] = {}


def by_triton(x: Tensor) -> bool:
    """True if Triton kernels process activations like these."""
    return x.is_cuda and has_triton(x.device)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_triton(device: torch.device) -> bool:
    """True if Triton kernels can be built and run on a GPU, tried out once.

    Triton comes with torch on Linux, but needs a C compiler, and a GPU that its release still knows.
    """
    device = device if device.index is not None else torch.device(device.type, torch.cuda.current_device())
    if device not in known_devices:
        try:
            problem = _problem(device)
        except BaseException:
            known_devices.pop(device, None)
            raise
        known_devices[device] = not problem
        if problem:
            log.warning("Triton kernels unavailable on %s, using PyTorch: %s", device, problem)
    return known_devices[device]


def _problem(device: torch.device) -> str:
    """The reason why the kernels don't run, in a line; empty if they do."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    os.environ.setdefault(FUSION, "1")
    try:
        return "" if passes_agree(device) else "a pass came out wrong"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, a linker or a driver may say
        return one_line(error)


def passes_agree(device: torch.device) -> bool:
    """True if Triton and PyTorch agree on a device: sums, and a product on tensor cores."""
    x = (torch.arange(2 * 16 * 64) % 7 - 3.0).view(2, 16, 8, 8)
    weight, bias = (torch.arange(3 * 16 * 9) % 5 - 2.0).view(3, 16, 3, 3) / 8, torch.arange(3.0)
    answers = []
    for place in (torch.device("cpu"), device):
        known_devices[device] = place == device
        there = x.to(place).contiguous(memory_format=torch.channels_last)
        gain, nothing = torch.ones(16, device=place), torch.zeros(16, device=place)
        found = coefficients(moments(there), gain, nothing, nothing, pixels=64, groups=4, epsilon=1e-6)
        answers.append((found.cpu(), to_rgb(there, found, weight.to(place), bias.to(place)).cpu()))
    return all(torch.allclose(mine, wanted, rtol=1e-2, atol=1e-2) for wanted, mine in zip(*answers, strict=True))


@cache
def _kernels() -> ModuleType:
    from counterfoil.parts.fast import kernels  # imports triton, which takes a while and which a CPU does not need

    return kernels


@dataclass(frozen=True)
class Layout:
    """Distribution of an activation over programs."""

    images: int
    pixels: int
    channels: int

    @property
    def columns(self) -> int:
        """Channels, up to the next power of two."""
        return power_of_two(self.channels)

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
        wanted = max(PROGRAMS // self.images, 1)  # chunks per image
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
        """True if no tile hangs over."""
        return self.columns == self.channels and self.pixels % rows == 0

    def summing(self) -> dict[str, Any]:
        """Settings of kernels that sum up."""
        even = self.even(self.size)
        settings = {"C": self.channels, "ROWS": self.summed, "COLUMNS": self.columns, "EVEN": even}
        return {**settings, "UNROLL": UNROLL, "num_warps": WARPS}

    def mapping(self, tile: int, warps: int) -> tuple[tuple[int], dict[str, Any]]:
        """Grid and settings of kernels that map."""
        rows = self.rows(tile)
        settings = {"C": self.channels, "ROWS": rows, "COLUMNS": self.columns, "EVEN": self.even(rows), "num_warps": warps}
        return (self.images * -(-self.pixels // rows),), settings

    def grouping(self, groups: int) -> dict[str, Any]:
        """Settings of kernels that put partial sums of a group together."""
        width = self.channels // groups
        return {"C": self.channels, "WIDTH": width, "LANES": power_of_two(width), "CHUNKS": CHUNKS, "num_warps": 4}

    def partials(self, x: Tensor) -> Tensor:
        """Room for sums over chunks."""
        return torch.empty(self.images, self.chunks, 2, self.channels, dtype=torch.float32, device=x.device)


def layout(x: Tensor) -> Layout:
    """The layout of channels-last activations.  # (N, C, H, W)"""
    return Layout(x.shape[0], x.shape[2] * x.shape[3], x.shape[1])


def moments(x: Tensor) -> Tensor:
    """Mean and squared deviations of every channel, chunk by chunk.  # (N, C, H, W) → (N, chunks, 2, C)"""
    if by_triton(x):
        x = _last(x)
        return _moments(x, x, x, x, join=False)
    values = x.float().flatten(2)  # (N, C, P)
    mean = values.mean(2)
    spread = (values - mean[..., None]).square().sum(2)
    return torch.stack([mean, spread], 1)[:, None]


def join(kept: Tensor, change: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """kept + change + bias, and the moments of the sum.  # (N, C, H, W) twice, (C,)"""
    if by_triton(change):
        kept, change = _last(kept), _last(change)
        out = torch.empty_like(change)
        return out, _moments(kept, change, bias, out, join=True)
    total = (kept.float() + change.float() + bias[:, None, None]).to(change.dtype)
    return total, moments(total)


def _moments(kept: Tensor, change: Tensor, bias: Tensor, out: Tensor, *, join: bool) -> Tensor:
    plan = layout(change)
    partials = plan.partials(change)
    _kernels().moments_kernel[(plan.images * plan.chunks,)](
        kept, change, bias, out, partials, plan.pixels, plan.chunks, plan.loops, JOIN=join, **plan.summing()
    )
    return partials


def coefficients(
    partials: Tensor, gain: Tensor, bias: Tensor, pending: Tensor, *, pixels: int, groups: int, epsilon: float
) -> Tensor:
    """Scale, shift, rate and offset of every channel.  # (N, chunks, 2, C) → (N, 4, C)"""
    if by_triton(partials):
        plan = Layout(partials.shape[0], pixels, partials.shape[3])
        found = partials.new_empty(plan.images, 4, plan.channels)
        _kernels().coefficients_kernel[(plan.images * groups,)](
            partials, gain, bias, pending, found, pixels, plan.chunks, plan.size, epsilon, **plan.grouping(groups)
        )
        return found
    mean, spread = partials[:, 0].unbind(1)  # (N, C) each
    mean = (mean + pending).unflatten(1, (groups, -1))  # (N, G, C / G)
    centre = mean.mean(2, keepdim=True)
    variance = (spread.unflatten(1, (groups, -1)) / pixels + (mean - centre).square()).mean(2, keepdim=True)
    rate = (variance + epsilon).rsqrt().expand_as(mean).flatten(1)  # (N, C)
    offset = (pending - centre.expand_as(mean).flatten(1)) * rate
    return torch.stack([gain * rate, bias + offset * gain, rate, offset], 1)


def apply(x: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """x normalised, and through SiLU if wanted.  # (N, C, H, W)"""
    if by_triton(x):
        x, plan = _last(x), layout(x)
        out = torch.empty_like(x)
        grid, settings = plan.mapping(MAP_TILE, MAP_WARPS)
        _kernels().apply_kernel[grid](x, coefficients, out, plan.pixels, grid[0] // plan.images, SILU=silu, **settings)
        return out
    scale, shift = (each[..., None, None] for each in coefficients.unbind(1)[:2])
    result = x.float() * scale + shift
    return (F.silu(result) if silu else result).to(x.dtype)


def gradient_sums(x: Tensor, gradient: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    """Sums of the gradient before the SiLU, and of it times x normalised, chunk by chunk.  # → (N, chunks, 2, C)"""
    if by_triton(x):
        x, gradient, plan = _last(x), _last(gradient), layout(x)
        partials = plan.partials(x)
        _kernels().gradient_sums_kernel[(plan.images * plan.chunks,)](
            x, gradient, coefficients, partials, plan.pixels, plan.chunks, plan.loops, SILU=silu, **plan.summing()
        )
        return partials
    rate, offset = (each[..., None, None] for each in coefficients.unbind(1)[2:])
    slope = _before_silu(x, gradient, coefficients, silu=silu)
    along = slope * (x.float() * rate + offset)
    return torch.stack([slope.sum((2, 3)), along.sum((2, 3))], 1)[:, None]


def correction(partials: Tensor, gain: Tensor, coefficients: Tensor, *, pixels: int, groups: int) -> Tensor:
    """Correction of the gradient for the group's mean and spread: x · first + second.  # → (N, 2, C)"""
    if by_triton(partials):
        plan = Layout(partials.shape[0], pixels, partials.shape[3])
        found = partials.new_empty(plan.images, 2, plan.channels)
        _kernels().correction_kernel[(plan.images * groups,)](
            partials, gain, coefficients, found, pixels, partials.shape[1], **plan.grouping(groups)
        )
        return found
    count = pixels * len(gain) // groups
    once, along = (
        (each * gain).unflatten(1, (groups, -1)).sum(2, keepdim=True).expand(-1, -1, len(gain) // groups).flatten(1) / count
        for each in partials[:, 0].unbind(1)
    )  # (N, C) each
    rate, offset = coefficients.unbind(1)[2:]
    return torch.stack([-rate * rate * along, -rate * (once + offset * along)], 1)


def back(x: Tensor, gradient: Tensor, coefficients: Tensor, correction: Tensor, *, skip: Tensor | None, silu: bool) -> Tensor:
    """The gradient of x, with that of the shortcut (`skip`) added.  # → (N, C, H, W)"""
    if by_triton(x):
        x, gradient, plan = _last(x), _last(gradient), layout(x)
        skip = None if skip is None else _last(skip)
        out = torch.empty_like(gradient)
        grid, settings = plan.mapping(BACK_TILE, BACK_WARPS)
        _kernels().back_kernel[grid](
            x, gradient, coefficients, correction, gradient if skip is None else skip, out, plan.pixels, grid[0] // plan.images,
            SILU=silu, SKIP=skip is not None, **settings,
        )  # fmt: skip
        return out
    total = _before_silu(x, gradient, coefficients, silu=silu) * coefficients[:, 0, :, None, None]
    total = total + x.float() * correction[:, 0, :, None, None] + correction[:, 1, :, None, None]
    return (total if skip is None else total + skip.float()).to(gradient.dtype)


def to_rgb(x: Tensor, coefficients: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x normalised, through SiLU and a 3×3 convolution to three colours.  # (3, C, 3, 3), (3,) → (N, 3, H, W) float32"""
    if not by_triton(x):
        return F.conv2d(apply(x, coefficients, silu=True), weight, padding=1).float() + bias[:, None, None]
    x, plan, (height, width) = _last(x), layout(x), x.shape[2:]
    planes = torch.empty(plan.images, 27, plan.pixels, dtype=torch.float32, device=x.device)
    chunks = -(-plan.pixels // COLOUR_ROWS)
    columns = max(plan.columns, 16)  # the least that tensor cores multiply
    _kernels().spread_kernel[(plan.images * chunks,)](
        x, coefficients, _taps(weight).T.contiguous(), planes, plan.pixels, chunks, C=plan.channels, ROWS=COLOUR_ROWS,
        COLUMNS=columns, EVEN=columns == plan.channels and plan.pixels % COLOUR_ROWS == 0, num_warps=COLOUR_WARPS,
    )  # fmt: skip
    out = torch.empty(plan.images, 3, height, width, dtype=torch.float32, device=x.device)
    chunks = -(-plan.pixels // GATHERED)
    _kernels().gather_kernel[(plan.images * chunks,)](planes, bias, out, height, width, chunks, SIZE=GATHERED, num_warps=4)
    return out


def to_rgb_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of what `to_rgb` convolves.  # (N, 3, H, W), (3, C, 3, 3) → (N, C, H, W)"""
    if not by_triton(gradient):
        return F.conv_transpose2d(gradient.to(weight.dtype), weight, padding=1)
    images, _, height, width = gradient.shape
    around = torch.empty(images * height * width, 32, dtype=weight.dtype, device=gradient.device)
    chunks = -(-height * width // AROUND)
    planes = gradient.float().contiguous()
    _kernels().around_kernel[(images * chunks,)](planes, around, height, width, chunks, SIZE=AROUND, num_warps=4)
    return (around @ _taps(weight)).view(images, height, width, -1).permute(0, 3, 1, 2)


def add_edge(x: Tensor, edge: Tensor) -> Tensor:
    """x with its outermost pixels raised, in place: upper row, lower row, then the rest of the left and of the right column.

    # (N, C, h, w), (N, E, C)
    """
    images, channels, height, width = x.shape
    if by_triton(x) and x.is_contiguous(memory_format=torch.channels_last):
        columns = power_of_two(channels)
        rows = max(EDGE_TILE // columns, 1)
        chunks = -(-edge.shape[1] // rows)
        _kernels().edge_kernel[(images * chunks,)](
            x, edge, height, width, edge.shape[1], chunks, *edge.stride(),
            C=channels, ROWS=rows, COLUMNS=columns, num_warps=EDGE_WARPS,
        )  # fmt: skip
        return x
    upper, lower, left, right = edge.transpose(1, 2).split([width, width, height - 2, height - 2], 2)  # (N, C, …)
    x[:, :, 0] += upper
    x[:, :, -1] += lower
    x[:, :, 1:-1, 0] += left
    x[:, :, 1:-1, -1] += right
    return x


def gate_by_gelu(x: Tensor) -> Tensor:
    """One half times GELU of the other.  # (…, 2 × W) → (…, W)"""
    if not by_triton(x):
        value, gate = x.chunk(2, dim=-1)
        return value * F.gelu(gate)
    x = x.contiguous()
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    grid = (-(-out.numel() // GATE_BLOCK),)
    _kernels().gate_kernel[grid](x, out, out.numel(), out.shape[-1], BLOCK=GATE_BLOCK, num_warps=GATE_WARPS)
    return out


def _before_silu(x: Tensor, gradient: Tensor, coefficients: Tensor, *, silu: bool) -> Tensor:
    slope = gradient.float()
    if not silu:
        return slope
    scale, shift = (each[..., None, None] for each in coefficients.unbind(1)[:2])
    result = x.float() * scale + shift
    share = result.sigmoid()
    return slope * share * (1 + result * (1 - share))


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def power_of_two(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


def _taps(weight: Tensor) -> Tensor:
    """One row for every tap and colour, up to the next power of two.  # (3, C, 3, 3) → (32, C)"""
    return F.pad(weight.permute(2, 3, 0, 1).reshape(27, -1), (0, 0, 0, 5)).contiguous()
