"""Nearest codes of a codebook.

Distances are compared in float32 on every device, whatever the rest computes in. Of two different codes about as near, either
may be found, and which one can differ between CPUs and GPUs, as they round products differently. Of equal codes the first is
found on every one: a product may round equal columns differently, so equal codes are looked up, not told by their distances.

A whole table of distances would be large (134 million for 32 images of 256 cells and 16,384 codes). So a few cells are
compared at a time, and their least distance is found group by group: a plain minimum is much faster than its position. On a
GPU where Triton runs, kernels compare cells with each of several parts of the book on tensor cores, each part names its best,
and among those few the nearest is found by plain float32 distances.
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.parts.fast.dtypes import float32
from counterfoil.parts.fast.passes import by_triton, power_of_two

CELLS = 64  # compared at a time on a CPU
CELLS_ON_A_GPU = 16_384
GROUP = 128  # codes whose least distance is found first

# Of the kernels.
PARTS = 8  # of the book, each with a candidate
TILE_CELLS, TILE_CODES, DEPTH, WARPS, STAGES = 128, 128, 32, 4, 3  # of a tile
LEAST_DEPTH = 16  # of a product on tensor cores
ROWS = 4  # that are split, or whose candidates are compared, at a time


def nearest_codes(cells: Tensor, book: Tensor) -> Tensor:
    """The numbers of the codes nearest to cells; the first of equal codes.  # (M, D), (K, D) float32 → (M,) int64"""
    if by_triton(cells):
        return first_of_equals(book)[_nearest(cells.contiguous(), book.contiguous())]
    lengths = book.square().sum(1)  # (K,)
    doubled = (-2 * book).T.contiguous()  # (D, K)
    at_a_time = CELLS if cells.device.type == "cpu" else CELLS_ON_A_GPU
    with float32(cells.device):
        # A cell's own length adds the same to all its distances, so it is left out.
        found = torch.cat([first_least(torch.addmm(lengths, some, doubled)) for some in cells.split(at_a_time)])
    return first_of_equals(book)[found]


def first_least(table: Tensor) -> Tensor:
    """The column of each row's least entry; the first of equals.  # (M, K) → (M,) int64"""
    count, width = table.shape
    if width % GROUP:
        return table.argmin(1)
    groups = table.view(count, width // GROUP, GROUP)
    best = groups.amin(2).argmin(1)  # (M,)
    within = groups[torch.arange(count, device=table.device), best].argmin(1)
    return best * GROUP + within


def first_of_equals(book: Tensor) -> Tensor:
    """The number of the first code equal to each code.  # (K, D) float32 → (K,) int64

    By sorting a hash of each code's bits. Nothing is read back to the CPU, so a CUDA graph can hold it.
    """
    places = torch.arange(len(book), device=book.device)
    bits = (book + 0.0).contiguous().view(torch.int32)  # 0.0 for -0.0
    factors = (torch.arange(book.shape[1], device=book.device) * 2_654_435_761 + 97) | 1
    hashes, order = ((bits ^ (bits >> 15)) * factors).sum(1).sort(stable=True)  # int64, which wraps around
    begins = torch.cat([places[:1] == 0, hashes[1:] != hashes[:-1]])
    first = torch.empty_like(places)
    first[order] = order[torch.where(begins, places, 0).cummax(0).values]
    return torch.where((book[first] == book).all(1), first, places)  # equal hashes of different codes


def candidates(cells: Tensor, book: Tensor) -> Tensor:
    """The best code of each part of the book, by kernels; codes in ascending order.  # (M, D), (K, D) → (M, parts) int64"""
    from counterfoil.parts.fast import kernels  # imports triton, which a CPU does not need

    share = -(-len(book) // PARTS)
    share = -(-share // TILE_CODES) * TILE_CODES  # whole tiles
    parts = -(-len(book) // share)
    found = torch.empty(len(cells), parts, dtype=torch.long, device=cells.device)
    width = cells.shape[1]
    depth = min(DEPTH, max(LEAST_DEPTH, power_of_two(width)))
    split, scales, _ = _split(cells)
    split_book, book_scales, lengths = _split(book)
    kernels.candidates_kernel[(-(-len(cells) // TILE_CELLS), parts)](
        split, split_book, scales, book_scales, lengths, found, len(cells), len(book), share,
        D=width, CELLS=TILE_CELLS, CODES=TILE_CODES, DEPTH=depth, PARTS=parts, STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return found


def _split(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors as pairs of float16, what to scale them by, and their squared lengths.  # (M, D) → (2, M, D), (M,), (M,)"""
    from counterfoil.parts.fast import kernels

    count, width = vectors.shape
    split = torch.empty(2, count, width, dtype=torch.float16, device=vectors.device)
    scales, lengths = torch.empty(2, count, device=vectors.device)
    kernels.split_kernel[(-(-count // ROWS),)](
        vectors, split, scales, lengths, count, D=width, WIDTH=power_of_two(width), ROWS=ROWS
    )
    return split, scales, lengths


def _nearest(cells: Tensor, book: Tensor) -> Tensor:
    from counterfoil.parts.fast import kernels

    found = candidates(cells, book)
    nearest = torch.empty(len(cells), dtype=torch.long, device=cells.device)
    width = cells.shape[1]
    kernels.nearest_kernel[(-(-len(cells) // ROWS),)](
        cells, book, found, nearest, len(cells), D=width, WIDTH=power_of_two(width), PARTS=found.shape[1], ROWS=ROWS
    )
    return nearest
