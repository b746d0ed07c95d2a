"""Decoders and encoders built anew from fast layers, with the weights of the ones they were read from.

A decoder computes in the dtype that is asked for. An encoder computes in float32 throughout, as the codes a climb starts with
depend on the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.fast import layers, plans


@dataclass(frozen=True)
class FirstConv:
    """A convolution at the coarsest side, small enough to be left to the library."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, padding=self.weight.shape[2] // 2)


@dataclass(frozen=True)
class FastDecoder:
    """Pictures of codes, in about [-1, 1], differentiable in the codes; computes in `kind`, takes and gives float32."""

    first: tuple[FirstConv, ...]
    stages: tuple[layers.Stage, ...]
    end: layers.End
    kind: torch.dtype

    def __call__(self, codes: Tensor) -> Tensor:
        with torch.autocast(codes.device.type, enabled=False):
            x = codes.to(self.kind, memory_format=torch.channels_last)
            for conv in self.first:
                x = conv(x)
            return self.end(*layers.run(self.stages, x))


@dataclass(frozen=True)
class FastEncoder:
    """Latents of pictures in [-1, 1], before quantisation."""

    first: Tensor  # (C, 3, 3, 3)
    stages: tuple[layers.Stage, ...]
    norm: layers.Norm
    last: tuple[Tensor, Tensor]  # weights and bias
    to_latents: tuple[Tensor, Tensor]  # of the 1×1 convolution after it

    def __call__(self, samples: Tensor) -> Tensor:
        with torch.autocast(samples.device.type, enabled=False):
            x = F.conv2d(samples.float().contiguous(memory_format=torch.channels_last), self.first, padding=1)
            x, partials = layers.run(self.stages, x)
            x = F.conv2d(layers.normalise(x, self.norm, partials, silu=True), *self.last, padding=1)
            return F.conv2d(x, *self.to_latents).contiguous()


def build_decoder(network: Any, kind: torch.dtype) -> FastDecoder | None:
    """The fast decoder of a network; None where it has layers that are not known."""
    plan = plans.plan(network)
    if plan is None:
        return None
    builder = Builder(kind, torch.zeros(plan.first[-1].out_channels, device=plan.last.weight.device))
    first = tuple(FirstConv(builder.weights(each.weight), builder.weights(bias_of(each))) for each in plan.first)
    stages = tuple(builder.stage(each) for each in plan.stages)
    end = layers.End(builder.norm(plan.norm, builder.before), builder.weights(plan.last.weight), bias_of(plan.last))
    return FastDecoder(first, stages, end, kind)


def build_encoder(network: Any) -> FastEncoder | None:
    """The fast encoder of a network; None where it has layers that are not known."""
    plan = plans.encoder_plan(network)
    if plan is None:
        return None
    builder = Builder(torch.float32, bias_of(plan.first[0]))  # the first convolution's bias is added where it is read
    stages = tuple(builder.stage(each) for each in plan.stages)
    last, to_latents = ((builder.weights(each.weight), bias_of(each)) for each in (plan.last, network.quant_conv))
    return FastEncoder(builder.weights(plan.first[0].weight), stages, builder.norm(plan.norm, builder.before), last, to_latents)


class Builder:
    """Turns modules into layers that compute in `kind`, carrying along the bias that is still to be added (`before`)."""

    def __init__(self, kind: torch.dtype, before: Tensor) -> None:
        self.kind, self.before = kind, before

    def stage(self, plan: plans.StagePlan) -> layers.Stage:
        """The next stage."""
        if isinstance(plan, plans.ResidualPlan):
            return self._residual(plan)
        if isinstance(plan, plans.AttentionPlan):
            return self._attention(plan)
        self.before = bias_of(plan.conv)
        if isinstance(plan, plans.HalvePlan):
            return layers.Halve(self.weights(plan.conv.weight))
        return layers.Double(self.weights(layers.doubled_weight(plan.conv.weight.detach().float())))

    def norm(self, module: nn.GroupNorm, before: Tensor) -> layers.Norm:
        """A normalisation of what comes in plus `before`."""
        gain, bias = (each.detach().float().contiguous() for each in (module.weight, module.bias))
        return layers.Norm(gain, bias, before, module.num_groups, module.eps)

    def conv(self, weight: Tensor) -> layers.Conv:
        """A convolution without its bias."""
        return layers.Conv(self.weights(weight))

    def weights(self, tensor: Tensor) -> Tensor:
        """Weights as the layers want them."""
        layout = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
        return tensor.detach().to(self.kind).contiguous(memory_format=layout)

    def _residual(self, plan: plans.ResidualPlan) -> layers.Residual:
        norm1, norm2 = self.norm(plan.norm1, self.before), self.norm(plan.norm2, bias_of(plan.conv1))
        shortcut, around = None, self.before
        if plan.shortcut is not None:
            matrix = plan.shortcut.weight.detach().float()[:, :, 0, 0]
            shortcut, around = layers.Pointwise(self.weights(matrix)), matrix @ self.before + bias_of(plan.shortcut)
        added = around + bias_of(plan.conv2)
        self.before = torch.zeros_like(added)
        return layers.Residual(norm1, self.conv(plan.conv1.weight), norm2, self.conv(plan.conv2.weight), shortcut, added)

    def _attention(self, plan: plans.AttentionPlan) -> layers.Attention:
        matrices = [_matrix(each) for each in plan.inward]
        return layers.Attention(
            norm=self.norm(plan.norm, self.before),
            inward=self.weights(torch.cat(matrices)),
            inward_bias=self.weights(torch.cat([_offset(each) for each in plan.inward])),
            outward=self.weights(_matrix(plan.outward)),
            outward_bias=_offset(plan.outward),
            scale=matrices[0].shape[0] ** -0.5,
        )


def bias_of(module: nn.Module) -> Tensor:
    """A layer's bias in float32."""
    bias = module.bias
    assert isinstance(bias, Tensor)
    return bias.detach().float().contiguous()


def _matrix(module: nn.Module) -> Tensor:
    """The weights of a linear layer or a 1×1 convolution.  # → (O, I)"""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach().float().flatten(1)


def _offset(module: nn.Module) -> Tensor:
    return torch.zeros(len(_matrix(module)), device=_matrix(module).device) if module.bias is None else bias_of(module)
