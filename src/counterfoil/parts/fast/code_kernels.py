"""The nearest codes of a codebook on a GPU, by Triton kernels that never write a table of distances.

Cells are compared with the codes of each of several parts of the book on tensor cores, and each part names its best. Among those
few the nearest is found by plain float32 distances.

Tensor cores multiply halves, numbers of 11 digits. So a number becomes two of them, what rounding leaves of it and the rest, and
a product of float32 three products of halves; the fourth, of the rests, is smaller than float32's own rounding. Halves also have
a small range, so every cell and every code is first scaled by a power of two, which changes no digit.
"""

# ruff: noqa: N803
# Capitals are constants at compile time, as Triton's own kernels write them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from counterfoil.parts.fast.codes import first_of_equals

PARTS = 8  # of the book, each with a candidate
CELLS, CODES, DEPTH, WARPS, STAGES = 128, 128, 32, 4, 3  # of a tile
LEAST_DEPTH = 16  # of a product on tensor cores
ROWS = 4  # that are split, or whose candidates are compared, at a time


@triton.jit
def split_kernel(vectors, halves, scales, lengths, count, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Rounded vectors and their rests, their scales and squared lengths.  # (M, D) → (2, M, D) float16, (M,), (M,)"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.arange(0, WIDTH)
    inside = (rows[:, None] < count) & (along[None, :] < D)
    places = rows[:, None] * D + along[None, :]
    values = tl.load(vectors + places, mask=inside, other=0.0)
    # The largest number comes to lie between 64 and 128. Scales are made of their exponents' bits; 7 is the least that has both.
    exponent = tl.max(tl.abs(values), 1).to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 7), 254)
    scaled = values * ((260 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
    rounded = scaled.to(tl.float16)
    rest = (scaled - rounded.to(tl.float32)).to(tl.float16)
    tl.store(halves + places, rounded, mask=inside)
    tl.store(halves + count * D + places, rest, mask=inside)
    tl.store(scales + rows, ((exponent - 6) << 23).to(tl.float32, bitcast=True), mask=rows < count)
    tl.store(lengths + rows, tl.sum(values * values, 1), mask=rows < count)


@triton.jit
def candidates_kernel(
    cells, book, cell_scales, code_scales, lengths, found, count, codes, share,
    D: tl.constexpr, CELLS: tl.constexpr, CODES: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The nearest code of one part of the book, for a tile of cells.  # (2, M, D), (2, K, D), … → (M, parts) int64"""
    rows = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    part = tl.program_id(1)
    columns = tl.arange(0, CODES)
    depth = tl.arange(0, DEPTH)
    twice = 2.0 * tl.load(cell_scales + rows, mask=rows < count, other=0.0)
    best = tl.full((CELLS,), float("inf"), tl.float32)
    which = tl.zeros((CELLS,), tl.int32) + part * share
    for start in range(part * share, tl.minimum((part + 1) * share, codes), CODES):
        numbers = start + columns
        inside = (numbers < codes) & (numbers < (part + 1) * share)
        product = tl.zeros((CELLS, CODES), tl.float32)
        for along in tl.range(0, D, DEPTH, num_stages=STAGES):
            deep = (along + depth)[None, :] < D
            left = cells + rows[:, None] * D + (along + depth)[None, :]
            right = book + numbers[:, None] * D + (along + depth)[None, :]
            cell = tl.load(left, mask=(rows[:, None] < count) & deep, other=0.0)
            cell_rest = tl.load(left + count * D, mask=(rows[:, None] < count) & deep, other=0.0)
            code = tl.load(right, mask=inside[:, None] & deep, other=0.0)
            code_rest = tl.load(right + codes * D, mask=inside[:, None] & deep, other=0.0)
            product = tl.dot(cell_rest, tl.trans(code), product)
            product = tl.dot(cell, tl.trans(code_rest), product)
            product = tl.dot(cell, tl.trans(code), product)
        product *= tl.load(code_scales + numbers, mask=inside, other=0.0)[None, :]
        # A cell's own length adds the same to all its distances, so it is left out.
        distance = tl.load(lengths + numbers, mask=inside, other=float("inf"))[None, :] - twice[:, None] * product
        least, place = tl.min(distance, 1, return_indices=True)
        which = tl.where(least < best, start + place, which)
        best = tl.minimum(best, least)
    tl.store(found + rows * PARTS + part, which, mask=rows < count)


@triton.jit
def nearest_kernel(
    cells, book, found, nearest, count, D: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr
):
    """The nearest of a cell's candidates, the first of equals.  # (M, D), (K, D), (M, parts) → (M,) int64"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.arange(0, WIDTH)
    inside = (rows[:, None] < count) & (along[None, :] < D)
    values = tl.load(cells + rows[:, None] * D + along[None, :], mask=inside, other=0.0)
    best = tl.full((ROWS,), float("inf"), tl.float32)
    which = tl.load(found + rows * PARTS, mask=rows < count, other=0)
    for part in tl.static_range(PARTS):
        number = tl.load(found + rows * PARTS + part, mask=rows < count, other=0)
        apart = values - tl.load(book + number[:, None] * D + along[None, :], mask=inside, other=0.0)
        distance = tl.sum(apart * apart, 1)
        which = tl.where(distance < best, number, which)
        best = tl.minimum(best, distance)
    tl.store(nearest + rows, which, mask=rows < count)


def split(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors as pairs of halves, what to scale them by, and their squared lengths.  # (M, D) → (2, M, D), (M,), (M,)"""
    count, width = vectors.shape
    halves = torch.empty(2, count, width, dtype=torch.float16, device=vectors.device)
    scales, lengths = torch.empty(2, count, device=vectors.device)
    split_kernel[(-(-count // ROWS),)](
        vectors, halves, scales, lengths, count, D=width, WIDTH=triton.next_power_of_2(width), ROWS=ROWS
    )
    return halves, scales, lengths


def candidates(cells: Tensor, book: Tensor) -> Tensor:
    """The best code of each part of the book; codes in ascending order.  # (M, D), (K, D) → (M, parts) int64"""
    share = -(-len(book) // PARTS)
    share = -(-share // CODES) * CODES  # whole tiles
    parts = -(-len(book) // share)
    found = torch.empty(len(cells), parts, dtype=torch.long, device=cells.device)
    width = cells.shape[1]
    depth = min(DEPTH, max(LEAST_DEPTH, triton.next_power_of_2(width)))
    halves, scales, _ = split(cells)
    book_halves, book_scales, lengths = split(book)
    candidates_kernel[(-(-len(cells) // CELLS), parts)](
        halves, book_halves, scales, book_scales, lengths, found, len(cells), len(book), share,
        D=width, CELLS=CELLS, CODES=CODES, DEPTH=depth, PARTS=parts, STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return found


def nearest_codes(cells: Tensor, book: Tensor) -> Tensor:
    """The numbers of the codes nearest to cells; the first of equal codes.  # (M, D), (K, D) float32 → (M,) int64"""
    cells, book = cells.contiguous(), book.contiguous()
    found = candidates(cells, book)
    nearest = torch.empty(len(cells), dtype=torch.long, device=cells.device)
    width = cells.shape[1]
    nearest_kernel[(-(-len(cells) // ROWS),)](
        cells, book, found, nearest, len(cells), D=width, WIDTH=triton.next_power_of_2(width), PARTS=found.shape[1], ROWS=ROWS
    )
    return first_of_equals(book)[nearest]
