"""What the pixels just outside a window add to the convolutions inside: taken once of the whole picture, added at every step.

A 3×3 convolution of a window reaches one pixel beyond it, so only its outermost pixels lack something, and while the rest of the
picture stays as it is, what they lack is a constant. Edges are listed pixel by pixel: the upper row, the lower one, then the rest
of the left and of the right column.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import plain
from counterfoil.parts.fast.passes import passes
from counterfoil.parts.generators.sparse.box import Box


def length(at: Box) -> int:
    """Pixels of the edge of a window."""
    return 2 * (at.bottom - at.top) + 2 * (at.right - at.left) - 4


def beyond(x: Tensor, weight: Tensor, at: Box, *, doubled: bool = False) -> Tensor:
    """What a convolution's edge gets from outside a window.  # (N, I, H, W), (O, I, 3, 3) → (N, E, O) float32

    With `doubled` every pixel of x is four of the picture that is convolved, and `at` is in pixels of the latter.
    """
    weight = weight.float()
    top, left, bottom, right = at.top, at.left, at.bottom, at.right
    rows = [Box(top - 1, left - 1, top, right + 1), Box(bottom, left - 1, bottom + 1, right + 1)]  # with the corners
    columns = [Box(top, left - 1, bottom, left), Box(top, right, bottom, right + 1)]  # without
    upper, lower = (
        _along(_strip(x, strip, doubled=doubled)[:, :, 0], weight[:, :, tap]) for strip, tap in zip(rows, (0, 2), strict=True)
    )  # (N, w, O) each
    beside = [
        _along(F.pad(_strip(x, strip, doubled=doubled)[..., 0], (1, 1)), weight[..., tap])
        for strip, tap in zip(columns, (0, 2), strict=True)
    ]  # (N, h, O) each
    for corner, side in zip((0, -1), beside, strict=True):
        upper[:, corner] += side[:, 0]
        lower[:, corner] += side[:, -1]
    return torch.cat([upper, lower, *(side[:, 1:-1] for side in beside)], 1)


def add(x: Tensor, edge: Tensor) -> Tensor:
    """x with its outermost pixels raised, in place: only those few change.  # (N, C, h, w), (N, E, C)"""
    if passes(x) is plain or not x.is_contiguous(memory_format=torch.channels_last):
        return add_plainly(x, edge)
    from counterfoil.parts.fast import edge_kernel  # imports triton, which takes a while and which a CPU does not need

    return edge_kernel.add(x, edge)


def add_plainly(x: Tensor, edge: Tensor) -> Tensor:
    """The same in plain PyTorch, for any layout."""
    height, width = x.shape[2:]
    upper, lower, left, right = edge.transpose(1, 2).split([width, width, height - 2, height - 2], 2)  # (N, C, …)
    x[:, :, 0] += upper
    x[:, :, -1] += lower
    x[:, :, 1:-1, 0] += left
    x[:, :, 1:-1, -1] += right
    return x


def _along(strip: Tensor, weight: Tensor) -> Tensor:
    """A line of pixels convolved, by products of matrices: thin convolutions send a library searching.  # → (N, n, O) float32"""
    lines = strip.float().transpose(1, 2)  # (N, n + 2, I)
    count = lines.shape[1] - 2
    return lines[:, :count] @ weight[..., 0].T + lines[:, 1:-1] @ weight[..., 1].T + lines[:, 2:] @ weight[..., 2].T


def _strip(x: Tensor, region: Box, *, doubled: bool) -> Tensor:
    """A region that may go past the picture, where there is nothing.  # (N, C, H, W) → (N, C, region)"""
    if doubled:
        source = Box(region.top // 2, region.left // 2, -(-region.bottom // 2), -(-region.right // 2))
        larger = _strip(x, source, doubled=False).repeat_interleave(2, 2).repeat_interleave(2, 3)
        down, across = region.top - 2 * source.top, region.left - 2 * source.left
        return larger[:, :, down : down + region.bottom - region.top, across : across + region.right - region.left]
    height, width = x.shape[2:]
    inside = x[:, :, max(region.top, 0) : min(region.bottom, height), max(region.left, 0) : min(region.right, width)]
    missing = (-region.left, region.right - width, -region.top, region.bottom - height)
    return F.pad(inside, [max(each, 0) for each in missing])
