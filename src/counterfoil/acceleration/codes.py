"""The nearest codes of a codebook on a GPU, by a Triton kernel that never writes a table of distances.

Cells are compared with the codes of each of several parts of the book, on tensor cores with three TF32 products for one of
float32, and each part names its best. Among those few the nearest is found by plain float32 distances.
"""

# ruff: noqa: N803
# Capitals are constants at compile time, as Triton's own kernels write them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PARTS = 8  # of the book, each with a candidate
CELLS, CODES, DEPTH, WARPS = 64, 128, 32, 4  # of a tile
LEAST_DEPTH = 16  # of a product on tensor cores


@triton.jit
def candidates_kernel(
    cells, book, lengths, found, count, codes, share,
    D: tl.constexpr, CELLS: tl.constexpr, CODES: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The nearest code of one part of the book, for a tile of cells.  # (M, D), (K, D), (K,) → (M, parts) int64"""
    rows = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    part = tl.program_id(1)
    columns = tl.arange(0, CODES)
    depth = tl.arange(0, DEPTH)
    best = tl.full((CELLS,), float("inf"), tl.float32)
    which = tl.zeros((CELLS,), tl.int32) + part * share
    for start in range(part * share, tl.minimum((part + 1) * share, codes), CODES):
        numbers = start + columns
        inside = (numbers < codes) & (numbers < (part + 1) * share)
        product = tl.zeros((CELLS, CODES), tl.float32)
        for along in range(0, D, DEPTH):
            deep = (along + depth)[None, :] < D
            left = tl.load(cells + rows[:, None] * D + (along + depth)[None, :], mask=(rows[:, None] < count) & deep, other=0.0)
            right = tl.load(book + numbers[:, None] * D + (along + depth)[None, :], mask=inside[:, None] & deep, other=0.0)
            product = tl.dot(left, tl.trans(right), product, input_precision="tf32x3")
        # A cell's own length adds the same to all its distances, so it is left out.
        distance = tl.load(lengths + numbers, mask=inside, other=float("inf"))[None, :] - 2.0 * product
        least = tl.min(distance, 1)
        place = start + tl.argmin(distance, 1, tie_break_left=True).to(tl.int32)
        which = tl.where(least < best, place, which)
        best = tl.minimum(best, least)
    tl.store(found + rows * PARTS + part, which.to(tl.int64), mask=rows < count)


def candidates(cells: Tensor, book: Tensor) -> Tensor:
    """The best code of each part of the book; codes in ascending order.  # (M, D), (K, D) → (M, PARTS) int64"""
    share = -(-len(book) // PARTS)
    share = -(-share // CODES) * CODES  # whole tiles
    parts = -(-len(book) // share)
    found = torch.zeros(len(cells), parts, dtype=torch.long, device=cells.device)
    width = cells.shape[1]
    depth = min(DEPTH, max(LEAST_DEPTH, triton.next_power_of_2(width)))
    candidates_kernel[(-(-len(cells) // CELLS), parts)](
        cells.contiguous(), book.contiguous(), book.square().sum(1), found, len(cells), len(book), share,
        D=width, CELLS=CELLS, CODES=CODES, DEPTH=depth, PARTS=parts, num_warps=WARPS,
    )  # fmt: skip
    return found


def nearest_codes(cells: Tensor, book: Tensor) -> Tensor:
    """The numbers of the codes nearest to cells; the first of equals.  # (M, D), (K, D) float32 → (M,) int64"""
    found = candidates(cells, book)  # (M, parts)
    apart = (cells[:, None] - book[found]).square().sum(2)  # (M, parts)
    return found.gather(1, apart.argmin(1, keepdim=True))[:, 0]
