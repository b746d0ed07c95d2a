"""A Triton kernel for the gate of a transformer's wide layer: one half times GELU of the other, in one pass."""

# ruff: noqa: N803
# Capitals are constants at compile time, as Triton's own kernels write them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 2048, 4


@triton.jit
def gate_kernel(x, out, total, width, BLOCK: tl.constexpr):
    """The first half of each row times GELU of the second.  # (M, 2 × width) → (M, width)"""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < total
    first = at + (at // width) * width  # rows of x are twice as long
    value = tl.load(x + first, mask=real).to(tl.float32)
    gate = tl.load(x + first + width, mask=real).to(tl.float32)
    gelu = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    tl.store(out + at, (value * gelu).to(out.dtype.element_ty), mask=real)


def gated(x: Tensor) -> Tensor:
    """One half times GELU of the other.  # (…, 2 × W) → (…, W)"""
    x = x.contiguous()
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype, device=x.device)
    gate_kernel[(triton.cdiv(out.numel(), BLOCK),)](x, out, out.numel(), out.shape[-1], BLOCK=BLOCK, num_warps=WARPS)
    return out
