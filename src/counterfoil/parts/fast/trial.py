"""A Triton kernel to try out: whether kernels can be built and run on a device at all, products on tensor cores among them."""

# ruff: noqa: N803
# Capitals are constants at compile time, as Triton's own kernels write them.

from __future__ import annotations

import torch
import triton
import triton.language as tl

SIDE = 16  # the least that a product can have


@triton.jit
def product_kernel(x, out, SIDE: tl.constexpr):
    """A matrix times itself turned around.  # (SIDE, SIDE) → (SIDE, SIDE)"""
    at = tl.arange(0, SIDE)
    places = at[:, None] * SIDE + at[None, :]
    values = tl.load(x + places)
    tl.store(out + places, tl.dot(values, tl.trans(values), input_precision="tf32x3"))


def succeeds(device: torch.device) -> bool:
    """Whether the kernel runs on the device and gives what it should; numbers are whole and small, so every format has them."""
    x = (torch.arange(SIDE * SIDE) % 7 - 3.0).view(SIDE, SIDE)
    out = torch.zeros(SIDE, SIDE, device=device)
    product_kernel[(1,)](x.to(device), out, SIDE=SIDE)
    return torch.equal(out.cpu(), x @ x.T)
