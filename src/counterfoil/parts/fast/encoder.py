"""An encoder built anew from fast layers: float32 throughout, as the codes a climb starts with depend on the last digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.parts.fast import layers, plans
from counterfoil.parts.fast.decoder import Builder, bias_of


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


def build(network: Any) -> FastEncoder | None:
    """The fast encoder of a network; None where it has layers that are not known."""
    plan = plans.encoder_plan(network)
    if plan is None:
        return None
    builder = Builder(torch.float32, bias_of(plan.first[0]))  # the first convolution's bias is added where it is read
    stages = tuple(builder.stage(each) for each in plan.stages)
    last, to_latents = ((builder.weights(each.weight), bias_of(each)) for each in (plan.last, network.quant_conv))
    return FastEncoder(builder.weights(plan.first[0].weight), stages, builder.norm(plan.norm, builder.before), last, to_latents)
