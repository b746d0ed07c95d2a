"""The layers of a convolutional autoencoder with frozen weights: forward, and backward to the input alone.

Nothing is computed or kept for the gradients of weights. A convolution then needs nothing for its backward pass, and a block
keeps its input and what its first convolution gave, not what the normalisations made of them. Biases of convolutions cost no
pass either: they are added where the next pass reads the result (`pending`, the bias still to be added to an activation).

Layers see an image through a frame. `WHOLE` is all of it; frames of `window` record and replay what lies around a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import passes


@dataclass(frozen=True)
class Norm:
    """A group normalisation of x + pending; gain, bias and pending are float32."""

    gain: Tensor  # (C,)
    bias: Tensor  # (C,)
    pending: Tensor  # (C,)
    groups: int
    epsilon: float

    def coefficients(self, x: Tensor, partials: Tensor | None) -> Tensor:
        """Scale, shift, rate and offset of the normalisation, from the moments of x if they are known.  # → (N, 4, C)"""
        partials = passes.moments(x) if partials is None else partials
        pixels = x.shape[2] * x.shape[3]
        return passes.coefficients(
            partials, self.gain, self.bias, self.pending, pixels=pixels, groups=self.groups, epsilon=self.epsilon
        )

    def back(
        self, x: Tensor, gradient: Tensor, coefficients: Tensor, *,
        skip: Tensor | None = None, silu: bool = True, frozen: bool = False,
    ) -> Tensor:  # fmt: skip
        """The gradient of x from that of the normalised, with `skip` added; `frozen`: x does not move mean and variance."""
        if frozen:
            correction = coefficients.new_zeros(len(x), 2, x.shape[1])
        else:
            sums = passes.gradient_sums(x, gradient, coefficients, silu=silu)
            pixels = x.shape[2] * x.shape[3]
            correction = passes.correction(sums, self.gain, coefficients, pixels=pixels, groups=self.groups)
        return passes.back(x, gradient, coefficients, correction, skip=skip, silu=silu)


class Frame:
    """A view of an image, through which layers see it."""

    frozen = False  # whether means and variances stay as they were recorded

    def coefficients(self, norm: Norm, x: Tensor, partials: Tensor | None) -> Tensor:
        """The coefficients of a normalisation."""
        return norm.coefficients(x, partials)

    def edge(self, out: Tensor, source: Callable[[], Tensor], weight: Tensor, *, upsampled: bool = False) -> Tensor:
        """The result of a 3×3 convolution of `source`, with what lies beyond the frame."""
        return out


WHOLE = Frame()


@dataclass(frozen=True)
class Conv:
    """A 3×3 convolution without its bias."""

    weight: Tensor  # (O, I, 3, 3), channels last

    def after(self, x: Tensor, coefficients: Tensor, frame: Frame) -> Tensor:
        """The convolution of x normalised and through SiLU."""
        normed = passes.apply(x, coefficients, silu=True)
        return frame.edge(F.conv2d(normed, self.weight, padding=1), lambda: normed, self.weight)

    def back(self, gradient: Tensor, like: Tensor) -> Tensor:
        """The gradient of the input, of which only the shape and layout count: they are those of `like`."""
        one, none, wanted = [1, 1], [0, 0], [True, False, False]
        found: Tensor = torch.ops.aten.convolution_backward(
            gradient, like, self.weight, None, one, one, one, False, none, 1, wanted
        )[0]
        return found


@dataclass(frozen=True)
class Pointwise:
    """A 1×1 convolution without its bias, as a product of matrices."""

    weight: Tensor  # (O, I)

    def __call__(self, x: Tensor) -> Tensor:
        return (x.permute(0, 2, 3, 1) @ self.weight.T).permute(0, 3, 1, 2)

    def back(self, gradient: Tensor) -> Tensor:
        """The gradient of the input."""
        return (gradient.permute(0, 2, 3, 1) @ self.weight).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Residual:
    """Two normalised convolutions with a shortcut."""

    norm1: Norm
    conv1: Conv
    norm2: Norm
    conv2: Conv
    shortcut: Pointwise | None
    bias: Tensor  # (C,) float32: all that is added to the sum

    def __call__(self, x: Tensor, partials: Tensor | None, frame: Frame) -> tuple[Tensor, Tensor]:
        """The block's output and its moments."""
        out, moments = _ResidualPass.apply(x, partials, self, frame)
        return out, moments


class _ResidualPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, partials: Tensor | None, block: Residual, frame: Frame) -> tuple[Tensor, Tensor]:
        first = frame.coefficients(block.norm1, x, partials)
        inner = block.conv1.after(x, first, frame)
        second = frame.coefficients(block.norm2, inner, None)
        change = block.conv2.after(inner, second, frame)
        out, moments = passes.join(x if block.shortcut is None else block.shortcut(x), change, block.bias)
        ctx.save_for_backward(x, first, inner, second)
        ctx.block, ctx.frozen = block, frame.frozen
        ctx.mark_non_differentiable(moments)
        ctx.set_materialize_grads(False)  # of the moments, which have none
        return out, moments

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x, first, inner, second = ctx.saved_tensors
        block: Residual = ctx.block
        slope = block.norm2.back(inner, block.conv2.back(gradient, inner), second, frozen=ctx.frozen)
        around = gradient if block.shortcut is None else block.shortcut.back(gradient)
        return block.norm1.back(x, block.conv1.back(slope, x), first, skip=around, frozen=ctx.frozen), None, None, None


@dataclass(frozen=True)
class Upsample:
    """Twice the side, every pixel four times, then a 3×3 convolution, in one: a transposed convolution of stride 2.

    Each output pixel sees only 2 × 2 different inputs through its nine weights, so that those that meet the same input
    can be added up beforehand: four weights instead of nine, and no larger activation in between.
    """

    weight: Tensor  # (I, O, 4, 4), channels last
    plain: Tensor  # (O, I, 3, 3), of the convolution alone

    def __call__(self, x: Tensor, _: Tensor | None, frame: Frame) -> tuple[Tensor, None]:
        return _UpsamplePass.apply(x, self, frame), None


class _UpsamplePass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Upsample, frame: Frame) -> Tensor:
        ctx.layer = layer
        out = F.conv_transpose2d(x, layer.weight, stride=2, padding=1)
        return frame.edge(out, lambda: x, layer.plain, upsampled=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return F.conv2d(gradient, ctx.layer.weight, stride=2, padding=1), None, None


def upsample_weight(weight: Tensor) -> Tensor:
    """The weights of the transposed convolution that doubles and then convolves.  # (O, I, 3, 3) → (I, O, 4, 4)

    Along one axis, output 2i gets input i − 1 through weight 0 and input i through weights 1 and 2; output 2i + 1 gets input i
    through weights 0 and 1 and input i + 1 through weight 2. A transposed convolution of stride 2 and padding 1 sends input i
    to the outputs 2i − 1 … 2i + 2, through its weights 0 … 3.
    """
    mix = weight.new_tensor([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]])  # (4, 3)
    return torch.einsum("oihw,ah,bw->ioab", weight, mix, mix)


@dataclass(frozen=True)
class Downsample:
    """Half the side: a 3×3 convolution of stride 2, without its bias, padded on the right and below."""

    weight: Tensor  # (O, I, 3, 3), channels last

    def __call__(self, x: Tensor, _: Tensor | None, frame: Frame) -> tuple[Tensor, None]:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, stride=2), None


@dataclass(frozen=True)
class Attention:
    """Every pixel attends to every other one, with a single head, and adds what it sees; nothing is pending on its input."""

    norm: Norm
    inward: Tensor  # (3 C, C): query, key and value
    inward_bias: Tensor  # (3 C,)
    outward: Tensor  # (C, C)
    outward_bias: Tensor  # (C,) float32
    scale: float

    def __call__(self, x: Tensor, partials: Tensor | None, frame: Frame) -> tuple[Tensor, Tensor]:
        """The sum and its moments."""
        out, moments = _AttentionPass.apply(x, partials, self)
        return out, moments


class _AttentionPass(torch.autograd.Function):
    """Written out: with heads this wide the library's fused kernels have no fast backward pass, and the table is small."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, partials: Tensor | None, layer: Attention) -> tuple[Tensor, Tensor]:
        coefficients = layer.norm.coefficients(x, partials)
        normed = to_tokens(passes.apply(x, coefficients, silu=False))
        three = F.linear(normed, layer.inward, layer.inward_bias)  # (N, P, 3 C)
        query, key, value = three.chunk(3, dim=2)
        table = _scaled_product(query, key.transpose(1, 2), layer.scale).softmax(2, dtype=torch.float32)  # (N, P, P)
        change = torch.bmm(table.to(x.dtype), value) @ layer.outward.T
        out, moments = passes.join(x, to_image(change, x), layer.outward_bias)
        ctx.save_for_backward(x, coefficients, three, table)
        ctx.layer = layer
        ctx.mark_non_differentiable(moments)
        ctx.set_materialize_grads(False)  # of the moments, which have none
        return out, moments

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x, coefficients, three, table = ctx.saved_tensors
        layer: Attention = ctx.layer
        query, key, value = three.chunk(3, dim=2)
        seen = to_tokens(gradient) @ layer.outward
        slopes = torch.empty_like(three)
        of_query, of_key, of_value = slopes.chunk(3, dim=2)
        torch.bmm(table.to(x.dtype).transpose(1, 2), seen, out=of_value)
        of_seen = torch.bmm(seen, value.transpose(1, 2)).float()
        of_table = torch.ops.aten._softmax_backward_data(of_seen, table, 2, torch.float32).to(x.dtype)
        _scaled_product(of_table, key, layer.scale, out=of_query)
        _scaled_product(of_table.transpose(1, 2), query, layer.scale, out=of_key)
        slope = to_image(slopes @ layer.inward, x)
        return layer.norm.back(x, slope, coefficients, skip=gradient, silu=False), None, None


def to_tokens(x: Tensor) -> Tensor:
    """The pixels of channels-last activations side by side.  # (N, C, H, W) → (N, P, C)"""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def to_image(tokens: Tensor, like: Tensor) -> Tensor:
    """Pixels side by side as activations of the height and width of others.  # (N, P, C) → (N, C, H, W)"""
    return tokens.view(len(tokens), *like.shape[2:], -1).permute(0, 3, 1, 2)


def _scaled_product(left: Tensor, right: Tensor, scale: float, *, out: Tensor | None = None) -> Tensor:
    """Products of matrices times `scale`, which costs no pass.  # (N, I, K), (N, K, O) → (N, I, O)"""
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2]) if out is None else out
    result: Tensor = torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
    return result


def normalise(x: Tensor, norm: Norm, partials: Tensor | None, *, silu: bool) -> Tensor:
    """x + pending, normalised, and through SiLU if wanted; differentiable in x."""
    with torch.no_grad():
        coefficients = norm.coefficients(x, partials)
    result: Tensor = NormPass.apply(x, coefficients, norm, silu)
    return result


class NormPass(torch.autograd.Function):
    """x by the coefficients of its own normalisation; the gradient knows that they depend on x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficients: Tensor, norm: Norm, silu: bool) -> Tensor:
        ctx.save_for_backward(x, coefficients)
        ctx.norm, ctx.silu = norm, silu
        return passes.apply(x, coefficients, silu=silu)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, coefficients = ctx.saved_tensors
        return ctx.norm.back(x, gradient, coefficients, silu=ctx.silu), None, None, None


@dataclass(frozen=True)
class ToRgb:
    """The end of a decoder: normalise, SiLU and a 3×3 convolution to three colours."""

    norm: Norm
    weight: Tensor  # (3, C, 3, 3)
    bias: Tensor  # (3,) float32

    def __call__(self, x: Tensor, partials: Tensor | None, frame: Frame) -> Tensor:
        """Images, in float32.  # (N, C, H, W) → (N, 3, H, W)"""
        result: Tensor = _ToRgbPass.apply(x, partials, self, frame)
        return result


class _ToRgbPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, partials: Tensor | None, layer: ToRgb, frame: Frame) -> Tensor:
        coefficients = frame.coefficients(layer.norm, x, partials)
        ctx.save_for_backward(x, coefficients)
        ctx.layer, ctx.frozen = layer, frame.frozen
        out = passes.to_rgb(x, coefficients, layer.weight, layer.bias)
        return frame.edge(out, lambda: passes.apply(x, coefficients, silu=True), layer.weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, coefficients = ctx.saved_tensors
        slope = passes.to_rgb_back(gradient, ctx.layer.weight)
        return ctx.layer.norm.back(x, slope, coefficients, frozen=ctx.frozen), None, None, None


Stage = Residual | Attention | Upsample | Downsample


def run(stages: Sequence[Stage], x: Tensor, partials: Tensor | None = None, frame: Frame = WHOLE) -> tuple[Tensor, Tensor | None]:
    """x through all stages, and the moments of the result where the last stage has summed them up on its way."""
    for stage in stages:
        x, partials = stage(x, partials, frame)
    return x, partials
