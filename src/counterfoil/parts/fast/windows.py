"""A window of a decoder's picture, by fast layers: the decoder of a sparse search on a GPU.

It computes what `sparse/submodel.py` computes with the network's own layers. The whole decoder runs once for every image and
notes what the window will need: what lies beyond each convolution's edge adds to it, and what each normalisation came down to.
From then on stages run whole up to the first doubling of the side, and on the window after it. A normalisation whose means and
variances stand is a scale and a shift, so neither its forward nor its backward pass has anything to sum up: beside its
convolutions, a block reads or writes an activation fourteen times instead of nineteen.

A 3×3 convolution of a window reaches one pixel beyond it, so only its outermost pixels lack something, and while the rest of the
image stays as it is, what they lack is a constant. Edges are listed pixel by pixel: the upper row, the lower one, then the rest
of the left and of the right column.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import CounterfoilError, one_line
from counterfoil.parts.fast import coders, layers, plans
from counterfoil.parts.fast import passes as references
from counterfoil.parts.fast.passes import passes
from counterfoil.parts.generators.sparse.box import Box
from counterfoil.parts.generators.sparse.submodel import Submodel

COEFFICIENTS = 4  # of a channel: what a normalisation comes down to

Shape = tuple[int, int]
Recorded = tuple[Tensor, Tensor | None, list[Tensor]]
"""What a stage gives, its moments where it has summed them up, and the notes."""


@dataclass(frozen=True)
class FramedResidual:
    """A residual block of a window."""

    block: layers.Residual
    at: Box  # the window in pixels

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of what it notes of an image."""
        inward, between, outward = len(self.block.norm1.gain), len(self.block.norm2.gain), len(self.block.bias)
        edge = edge_length(self.at)
        return (COEFFICIENTS, inward), (edge, between), (COEFFICIENTS, between), (edge, outward)

    def record(self, x: Tensor, partials: Tensor | None) -> Recorded:
        """The whole picture through the block."""
        block, by = self.block, passes(x)
        first = block.norm1.coefficients(x, partials)
        normed = by.apply(x, first, silu=True)
        notes = [first, beyond(normed, block.conv1.weight, self.at)]
        inner = block.conv1(normed)
        second = block.norm2.coefficients(inner, None)
        normed = by.apply(inner, second, silu=True)
        notes += [second, beyond(normed, block.conv2.weight, self.at)]
        out, moments = by.join(x if block.shortcut is None else block.shortcut(x), block.conv2(normed), block.bias)
        return out, moments, notes

    def __call__(self, x: Tensor, notes: Sequence[Tensor]) -> Tensor:
        """The window through the block."""
        result: Tensor = _ResidualPass.apply(x, self, *notes)
        return result

    def inner(self, x: Tensor, coefficients: Tensor, edge: Tensor) -> Tensor:
        """What the first convolution gives."""
        return add_edge(self.block.inner(x, coefficients), edge)


class _ResidualPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FramedResidual, first: Tensor, edge: Tensor, second: Tensor, last: Tensor) -> Tensor:
        block, by = layer.block, passes(x)
        inner = layer.inner(x, first, edge)
        change = add_edge(block.conv2(by.apply(inner, second, silu=True)), last)
        out: Tensor = by.join(x if block.shortcut is None else block.shortcut(x), change, block.bias)[0]
        ctx.save_for_backward(x, first, inner, second)
        ctx.layer = layer
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, first, inner, second = ctx.saved_tensors
        (gradient,), block = gradients, ctx.layer.block
        slope = _back(inner, block.conv2.back(gradient, inner), second)
        around = gradient if block.shortcut is None else block.shortcut.back(gradient)
        return _back(x, block.conv1.back(slope, x), first, skip=around), None, None, None, None, None


@dataclass(frozen=True)
class FramedDouble:
    """Twice the side and a convolution, of a window."""

    layer: layers.Double
    weight: Tensor  # (O, I, 3, 3), of the convolution
    at: Box  # the window in pixels, once doubled

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of what it notes of an image."""
        return ((edge_length(self.at), len(self.weight)),)

    def record(self, x: Tensor, _: Tensor | None) -> Recorded:
        """The whole picture, doubled."""
        return self.layer(x), None, [beyond(x, self.weight, self.at, doubled=True)]

    def __call__(self, x: Tensor, notes: Sequence[Tensor]) -> Tensor:
        """The window, doubled."""
        result: Tensor = _DoublePass.apply(x, self.layer, *notes)
        return result


class _DoublePass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: layers.Double, edge: Tensor) -> Tensor:
        ctx.layer = layer
        return add_edge(F.conv_transpose2d(x, layer.weight, stride=2, padding=1), edge)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return F.conv2d(gradients[0], ctx.layer.weight, stride=2, padding=1), None, None


@dataclass(frozen=True)
class FramedEnd:
    """The end of a decoder, of a window."""

    end: layers.End
    at: Box  # the window in pixels

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of what it notes of an image."""
        return (COEFFICIENTS, len(self.end.norm.gain)), (edge_length(self.at), 3)

    def record(self, x: Tensor, partials: Tensor | None) -> Recorded:
        """The whole pictures."""
        end, by = self.end, passes(x)
        found = end.norm.coefficients(x, partials)
        edge = beyond(by.apply(x, found, silu=True), end.weight, self.at)
        return by.ending(x, found, end.weight, end.bias), None, [found, edge]

    def __call__(self, x: Tensor, notes: Sequence[Tensor]) -> Tensor:
        """The windows, in float32."""
        result: Tensor = _EndPass.apply(x, self.end, *notes)
        return result


class _EndPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, end: layers.End, coefficients: Tensor, edge: Tensor) -> Tensor:
        ctx.save_for_backward(x, coefficients)
        ctx.end = end
        return add_edge_plainly(passes(x).ending(x, coefficients, end.weight, end.bias), edge)  # colours do not come last

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, coefficients = ctx.saved_tensors
        return _back(x, passes(x).ending_back(gradients[0], ctx.end.weight), coefficients), None, None, None


def _back(x: Tensor, gradient: Tensor, coefficients: Tensor, *, skip: Tensor | None = None) -> Tensor:
    """The gradient of x from that of the normalised, whose means and variances x does not move."""
    nothing = coefficients.new_zeros(len(x), 2, x.shape[1])
    result: Tensor = passes(x).back(x, gradient, coefficients, nothing, skip=skip, silu=True)
    return result


class _CutPass(torch.autograd.Function):
    """The window of an activation, channels last both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Box) -> Tensor:
        ctx.shape, ctx.at = x.shape, at
        return x[:, :, at.top : at.bottom, at.left : at.right].contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient, at = gradients[0], ctx.at
        whole = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=torch.channels_last).zero_()
        whole[:, :, at.top : at.bottom, at.left : at.right] = gradient
        return whole, None


@dataclass(frozen=True)
class WindowedDecoder:
    """Windows of the pictures of codes, in about [-1, 1], differentiable in the codes."""

    whole: coders.FastDecoder
    ahead: tuple[layers.Stage, ...]  # stages at the codes' own resolution
    box: Box  # the window in cells
    framed: tuple[FramedResidual | FramedDouble, ...]
    end: FramedEnd

    @torch.no_grad()
    def record(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The whole pictures, and what their windows will need of them.  # (N, C, h, w) → (N, 3, H, W), (N, L) float32"""
        with torch.autocast(codes.device.type, enabled=False):
            x, partials = layers.run(self.ahead, self._first(codes))
            taken: list[Tensor] = []
            for stage in (*self.framed, self.end):
                x, partials, notes = stage.record(x, partials)
                taken += notes
            return x, torch.cat([each.reshape(len(codes), -1) for each in taken], 1)

    def __call__(self, codes: Tensor, notes: Tensor) -> Tensor:
        """The windows of the pictures.  # (N, C, h, w), (N, L) → (N, 3, window) float32"""
        with torch.autocast(codes.device.type, enabled=False):
            x, _ = layers.run(self.ahead, self._first(codes))
            x = _CutPass.apply(x, self.box)
            recalled = self._recalled(notes)
            for stage in self.framed:
                x = stage(x, next(recalled))
            return self.end(x, next(recalled))

    def _first(self, codes: Tensor) -> Tensor:
        x = codes.to(self.whole.kind, memory_format=torch.channels_last)
        for conv in self.whole.first:
            x = conv(x)
        return x

    def _recalled(self, notes: Tensor) -> Iterator[list[Tensor]]:
        """The notes of every stage; those of normalisations lie in one piece, as kernels want them."""
        stages = (*self.framed, self.end)
        parts = iter(notes.split([rows * columns for stage in stages for rows, columns in stage.shapes], 1))
        for stage in stages:
            views = [next(parts).view(len(notes), *shape) for shape in stage.shapes]
            yield [view.contiguous() if view.shape[1] == COEFFICIENTS else view for view in views]


def build(network: Any, kind: torch.dtype, box: Box) -> WindowedDecoder | None:
    """The fast decoder of a window of cells; None where the network has layers that are not known, or look further."""
    plan, whole = plans.plan(network), coders.build_decoder(network, kind)
    if plan is None or whole is None:
        return None
    doubles = [number for number, stage in enumerate(plan.stages) if isinstance(stage, plans.DoublePlan)]
    if not doubles:
        return None
    framed: list[FramedResidual | FramedDouble] = []
    at = box
    for planned, stage in zip(plan.stages[doubles[0] :], whole.stages[doubles[0] :], strict=True):
        if isinstance(planned, plans.DoublePlan) and isinstance(stage, layers.Double):
            at = Box(2 * at.top, 2 * at.left, 2 * at.bottom, 2 * at.right)
            framed.append(FramedDouble(stage, planned.conv.weight.detach(), at))
        elif isinstance(stage, layers.Residual):
            framed.append(FramedResidual(stage, at))
        else:
            return None
    return WindowedDecoder(whole, whole.stages[: doubles[0]], box, tuple(framed), FramedEnd(whole.end, at))


def edge_length(at: Box) -> int:
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


def add_edge(x: Tensor, edge: Tensor) -> Tensor:
    """x with its outermost pixels raised, in place: only those few change.  # (N, C, h, w), (N, E, C)"""
    if passes(x) is references or not x.is_contiguous(memory_format=torch.channels_last):
        return add_edge_plainly(x, edge)
    raised: Tensor = passes(x).add_edge(x, edge)
    return raised


def add_edge_plainly(x: Tensor, edge: Tensor) -> Tensor:
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


log = logging.getLogger(__name__)

TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.1}
"""How far the window may be from that of the whole picture, relative to it. Rounding stays well below, TF32's included; an edge
or a scale that is missing does not."""


class FastSubmodel:
    """A submodel by fast layers, or by the network's own where those fail; the log says so once."""

    def __init__(self, plain: Submodel, fast: WindowedDecoder) -> None:
        self.plain, self.tried = plain, False
        self.fast: WindowedDecoder | None = fast

    @torch.no_grad()
    def record(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """The whole pictures, and what their windows will need of them.  # (N, C, h, w) → (N, 3, H, W), (N, L)"""
        if not self.tried:
            self._try(latents)
        if self.fast is None:
            return self.plain.record(latents)
        pictures, notes = self.fast.record(latents)
        return (pictures + 1) / 2, notes

    def decode(self, latents: Tensor, surroundings: Tensor) -> Tensor:
        """The windows' parts of the pictures of whole latents.  # (N, C, h, w), (N, L) → (N, 3, window)"""
        if self.fast is None:
            return self.plain.decode(latents, surroundings)
        return (self.fast(latents, surroundings) + 1) / 2

    def _try(self, latents: Tensor) -> None:
        """Before anything has moved, the window is that of the whole picture; a gradient is taken to see that it can be."""
        assert self.fast is not None
        try:
            pictures, notes = self.fast.record(latents)
            with torch.enable_grad():
                leaf = latents.detach().requires_grad_()
                window = self.fast(leaf, notes)
                slope = torch.autograd.grad(window.sum(), leaf)[0]
            wanted = self.plain.around.cut(pictures)
            apart = float((window - wanted).norm() / wanted.norm())
            sound = apart <= TOLERANCE[self.fast.whole.kind] and bool(slope.isfinite().all())
            reason = "" if sound else f"their window is {apart:.2g} off that of the whole picture, or has no finite gradient"
        except (CounterfoilError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            reason = one_line(error)
        self.tried = True
        if reason:
            self.fast = None
            log.warning("the window is decoded by the network's own layers and not by fused ones: %s", reason)
