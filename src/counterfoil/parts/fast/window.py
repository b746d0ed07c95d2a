"""A window of a decoder's image: the same layers on part of it, with the rest as it was recorded.

A decoder first works at the codes' own resolution, where a layer may look at everything (attention), and then doubles the side
again and again, where nearly all the time goes. A window runs the first part whole and the second on a rectangle. The whole
decoder runs once per image and records what the window will need: what lies beyond each convolution's edge adds to it, and what
each normalisation came down to. So before anything has moved the window is that of the whole image, and afterwards it differs by
what would have changed outside.

A 3×3 convolution of a window reaches one pixel beyond it, so only its outermost pixels lack something, and while the rest of the
image stays as it is, what they lack is a constant. A normalisation whose means and variances stand is a scale and a shift, so
neither its forward nor its backward pass has anything to sum up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import layers, passes
from counterfoil.parts.fast.coders import FastDecoder


@dataclass(frozen=True)
class Box:
    """Rows `top` to `bottom` and columns `left` to `right` of a grid of cells, the last ones not included."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def area(self) -> int:
        """Number of cells."""
        return (self.bottom - self.top) * (self.right - self.left)

    def dilate(self, cells: int, *, grid: tuple[int, int]) -> Box:
        """The box with a margin on every side, as far as the grid goes."""
        top, left = max(self.top - cells, 0), max(self.left - cells, 0)
        return Box(top, left, min(self.bottom + cells, grid[0]), min(self.right + cells, grid[1]))

    def scale(self, down: int, across: int) -> Box:
        """The box where every cell is so many pixels high and wide."""
        return Box(self.top * down, self.left * across, self.bottom * down, self.right * across)

    def cells(self, *, grid: tuple[int, int]) -> Tensor:
        """The cells of the grid that it holds.  # (H, W) bool"""
        held = torch.zeros(grid, dtype=torch.bool)
        held[self.slices] = True
        return held

    @property
    def slices(self) -> tuple[slice, slice]:
        """Its rows and columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def cut(self, rows: Tensor, *, grid: tuple[int, int]) -> Tensor:
        """Its part of feature maps that have a whole number of pixels per cell.  # (N, C, H, W) → (N, C, h, w)"""
        return rows[(..., *self._pixels(rows, grid).slices)]

    def paste(self, part: Tensor, whole: Tensor, *, grid: tuple[int, int]) -> Tensor:
        """`whole` with its part replaced; gradients reach `part`.  # (N, C, h, w) and (N, C, H, W) → (N, C, H, W)"""
        filled = whole.to(torch.promote_types(part.dtype, whole.dtype), copy=True)
        filled[(..., *self._pixels(whole, grid).slices)] = part.to(filled.dtype)
        return filled

    def _pixels(self, rows: Tensor, grid: tuple[int, int]) -> Box:
        return self.scale(rows.shape[-2] // grid[0], rows.shape[-1] // grid[1])


def bounding_box(cells: Tensor) -> Box:
    """The smallest box that holds every true cell.  # (H, W) bool, not all of them false"""
    down, across = cells.any(1).nonzero()[:, 0].tolist(), cells.any(0).nonzero()[:, 0].tolist()
    return Box(down[0], across[0], down[-1] + 1, across[-1] + 1)


class NoWindow(Exception):
    """A decoder cannot be run on a window; the message says why."""


class WindowDecoder:
    """Windows of images of codes, in about [0, 1], differentiable in the codes."""

    def __init__(self, decoder: FastDecoder, box: Box, shape: Sequence[int]) -> None:
        """`shape` is that of one image's codes, `box` the window in their cells. Raises NoWindow where that does not work."""
        doubling = [place for place, stage in enumerate(decoder.stages) if isinstance(stage, layers.Upsample)]
        if not doubling:
            raise NoWindow("none of its decoder's layers enlarges the latent")
        self.decoder, self.box = decoder, box
        self.ahead, self.framed = decoder.stages[: doubling[0]], decoder.stages[doubling[0] :]
        if any(isinstance(stage, layers.Attention) for stage in self.framed):
            raise NoWindow("its decoder attends to the whole image once it has begun to enlarge")
        codes = torch.zeros(1, *shape, device=decoder.to_rgb.bias.device)
        self.shapes = [note.shape[1:] for note in self._record(codes)[1]]  # of what is recorded of an image

    def record(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The whole images, and what their windows will need of them.  # (N, C, h, w) → (N, 3, H, W), (N, L) float32"""
        images, notes = self._record(codes)
        return images, torch.cat([note.flatten(1).float() for note in notes], 1)

    @torch.no_grad()
    def _record(self, codes: Tensor) -> tuple[Tensor, list[Tensor]]:
        frame = _Recording(self.box)
        with torch.autocast(codes.device.type, enabled=False):
            x, partials = layers.run(self.ahead, self.decoder.begin(codes))
            images = self.decoder.to_rgb(*layers.run(self.framed, x, partials, frame), frame)
        return (images + 1) / 2, frame.notes

    def __call__(self, codes: Tensor, recorded: Tensor) -> Tensor:
        """The windows of the images.  # (N, C, h, w), (N, L) → (N, 3, window) float32"""
        parts = recorded.split([shape.numel() for shape in self.shapes], 1)
        frame = _Replay(part.view(len(recorded), *shape) for part, shape in zip(parts, self.shapes, strict=True))
        with torch.autocast(codes.device.type, enabled=False):
            x, _ = layers.run(self.ahead, self.decoder.begin(codes))
            x = _Cut.apply(x, self.box)
            return (self.decoder.to_rgb(*layers.run(self.framed, x, None, frame), frame) + 1) / 2


class _Recording(layers.Frame):
    """All of the image, noting what a window will need of it."""

    def __init__(self, box: Box) -> None:
        self.box = box  # in pixels of the layer that comes next
        self.notes: list[Tensor] = []

    def coefficients(self, norm: layers.Norm, x: Tensor, partials: Tensor | None) -> Tensor:
        self.notes.append(norm.coefficients(x, partials))
        return self.notes[-1]

    def edge(self, out: Tensor, source: Callable[[], Tensor], weight: Tensor, *, upsampled: bool = False) -> Tensor:
        if upsampled:
            self.box = self.box.scale(2, 2)
        self.notes.append(beyond(source(), weight, self.box, upsampled=upsampled))
        return out


class _Replay(layers.Frame):
    """The window alone, with what was noted of the rest."""

    frozen = True

    def __init__(self, notes: Iterable[Tensor]) -> None:
        self.notes = iter(notes)

    def coefficients(self, norm: layers.Norm, x: Tensor, partials: Tensor | None) -> Tensor:
        return next(self.notes).contiguous()  # in one piece, as kernels want it

    def edge(self, out: Tensor, source: Callable[[], Tensor], weight: Tensor, *, upsampled: bool = False) -> Tensor:
        return passes.add_edge(out, next(self.notes))


class _Cut(torch.autograd.Function):
    """The window of an activation, channels last both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, box: Box) -> Tensor:
        ctx.shape, ctx.box = x.shape, box
        return x[(..., *box.slices)].contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        whole = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=torch.channels_last).zero_()
        whole[(..., *ctx.box.slices)] = gradient
        return whole, None


def beyond(x: Tensor, weight: Tensor, box: Box, *, upsampled: bool = False) -> Tensor:
    """Contribution of the pixels outside a window to the edge of a convolution.  # (N, I, H, W), (O, I, 3, 3) → (N, E, O) float32

    Edges are listed pixel by pixel: the upper row, the lower one, then the rest of the left and of the right column. With
    `upsampled` every pixel of x is four of the image that is convolved, and `box` is in pixels of the latter.
    """
    weight = weight.float()
    top, left, bottom, right = box.top, box.left, box.bottom, box.right
    rows = [Box(top - 1, left - 1, top, right + 1), Box(bottom, left - 1, bottom + 1, right + 1)]  # with the corners
    columns = [Box(top, left - 1, bottom, left), Box(top, right, bottom, right + 1)]  # without
    upper, lower = (
        _along(_strip(x, strip, upsampled=upsampled)[:, :, 0], weight[:, :, tap]) for strip, tap in zip(rows, (0, 2), strict=True)
    )  # (N, w, O) each
    beside = [
        _along(F.pad(_strip(x, strip, upsampled=upsampled)[..., 0], (1, 1)), weight[..., tap])
        for strip, tap in zip(columns, (0, 2), strict=True)
    ]  # (N, h, O) each
    for corner, side in zip((0, -1), beside, strict=True):
        upper[:, corner] += side[:, 0]
        lower[:, corner] += side[:, -1]
    return torch.cat([upper, lower, *(side[:, 1:-1] for side in beside)], 1)


def _along(strip: Tensor, weight: Tensor) -> Tensor:
    """A line of pixels convolved, by products of matrices: thin convolutions send a library searching.  # → (N, n, O) float32"""
    lines = strip.float().transpose(1, 2)  # (N, n + 2, I)
    count = lines.shape[1] - 2
    return lines[:, :count] @ weight[..., 0].T + lines[:, 1:-1] @ weight[..., 1].T + lines[:, 2:] @ weight[..., 2].T


def _strip(x: Tensor, box: Box, *, upsampled: bool) -> Tensor:
    """A part that may go past the image, where there is nothing.  # (N, C, H, W) → (N, C, box)"""
    if upsampled:
        source = Box(box.top // 2, box.left // 2, -(-box.bottom // 2), -(-box.right // 2))
        larger = _strip(x, source, upsampled=False).repeat_interleave(2, 2).repeat_interleave(2, 3)
        down, across = box.top - 2 * source.top, box.left - 2 * source.left
        return larger[:, :, down : down + box.bottom - box.top, across : across + box.right - box.left]
    height, width = x.shape[2:]
    inside = x[:, :, max(box.top, 0) : min(box.bottom, height), max(box.left, 0) : min(box.right, width)]
    missing = (-box.left, box.right - width, -box.top, box.bottom - height)
    return F.pad(inside, [max(each, 0) for each in missing])
