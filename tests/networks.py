"""Small networks with telling weights, and the distance between what two of them give."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def stir(network: Any) -> Any:
    """The network with biases and gains that are not the usual zeros and ones."""
    chance = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        spread = 0.3 if weight.dim() == 1 else weight[0].numel() ** -0.5
        weight.data = torch.randn(weight.shape, generator=chance) * spread + (weight.dim() == 1) * 0.5
    return network.eval().requires_grad_(False)


def apart(found: Tensor, wanted: Tensor) -> float:
    """The relative distance of two tensors."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
