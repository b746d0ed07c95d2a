"""A window of a decoder's picture, by fast layers: the decoder of a sparse search on a GPU.

It computes what `sparse/submodel.py` computes with the network's own layers. The whole decoder runs once for every image and
notes what the window will need: what lies beyond each convolution's edge adds to it, and what each normalisation came down to.
From then on stages run whole up to the first doubling of the side, and on the window after it. A normalisation whose means and
variances stand is a scale and a shift, so neither its forward nor its backward pass has anything to sum up: beside its
convolutions, a block reads or writes an activation fourteen times instead of nineteen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import decoder, edges, layers, plans
from counterfoil.parts.fast.passes import passes
from counterfoil.parts.generators.sparse.box import Box

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
        edge = edges.length(self.at)
        return (COEFFICIENTS, inward), (edge, between), (COEFFICIENTS, between), (edge, outward)

    def record(self, x: Tensor, partials: Tensor | None) -> Recorded:
        """The whole picture through the block."""
        block, by = self.block, passes(x)
        first = block.norm1.coefficients(x, partials)
        normed = by.apply(x, first, silu=True)
        notes = [first, edges.beyond(normed, block.conv1.weight, self.at)]
        inner = block.conv1(normed)
        second = block.norm2.coefficients(inner, None)
        normed = by.apply(inner, second, silu=True)
        notes += [second, edges.beyond(normed, block.conv2.weight, self.at)]
        out, moments = by.join(x if block.shortcut is None else block.shortcut(x), block.conv2(normed), block.bias)
        return out, moments, notes

    def __call__(self, x: Tensor, notes: Sequence[Tensor]) -> Tensor:
        """The window through the block."""
        result: Tensor = _ResidualPass.apply(x, self, *notes)
        return result

    def inner(self, x: Tensor, coefficients: Tensor, edge: Tensor) -> Tensor:
        """What the first convolution gives."""
        return edges.add(self.block.inner(x, coefficients), edge)


class _ResidualPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FramedResidual, first: Tensor, edge: Tensor, second: Tensor, last: Tensor) -> Tensor:
        block, by = layer.block, passes(x)
        inner = layer.inner(x, first, edge)
        change = edges.add(block.conv2(by.apply(inner, second, silu=True)), last)
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
        return ((edges.length(self.at), len(self.weight)),)

    def record(self, x: Tensor, _: Tensor | None) -> Recorded:
        """The whole picture, doubled."""
        return self.layer(x), None, [edges.beyond(x, self.weight, self.at, doubled=True)]

    def __call__(self, x: Tensor, notes: Sequence[Tensor]) -> Tensor:
        """The window, doubled."""
        result: Tensor = _DoublePass.apply(x, self.layer, *notes)
        return result


class _DoublePass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: layers.Double, edge: Tensor) -> Tensor:
        ctx.layer = layer
        return edges.add(F.conv_transpose2d(x, layer.weight, stride=2, padding=1), edge)

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
        return (COEFFICIENTS, len(self.end.norm.gain)), (edges.length(self.at), 3)

    def record(self, x: Tensor, partials: Tensor | None) -> Recorded:
        """The whole pictures."""
        end, by = self.end, passes(x)
        found = end.norm.coefficients(x, partials)
        edge = edges.beyond(by.apply(x, found, silu=True), end.weight, self.at)
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
        return edges.add_plainly(passes(x).ending(x, coefficients, end.weight, end.bias), edge)  # colours do not come last

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

    whole: decoder.FastDecoder
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
    plan, whole = plans.plan(network), decoder.build(network, kind)
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
