"""Straight-through gradients: a value that is seen, and another one that is felt."""

from __future__ import annotations

import torch
from torch import Tensor


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor, carrier: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient


def straight_through(value: Tensor, carrier: Tensor) -> Tensor:
    """`value`, to the last bit, whose gradient goes to `carrier` as if it had been the value. Shapes must agree.

    The usual `carrier + (value - carrier).detach()` rounds, and a reconstruction has to be exact.
    """
    result: Tensor = _StraightThrough.apply(value.detach(), carrier)
    return result
