"""Nearest codes of a codebook.

Distances are compared in float32 on every device, whatever the rest computes in. Of two different codes about as near, either
may be found, and which one can differ between CPUs and GPUs, as they round products differently. Of equal codes the first is
found on every one: a product may round equal columns differently, so equal codes are looked up, not told by their distances.

A whole table of distances would be large (134 million for 32 images of 256 cells and 16,384 codes). So a few cells are
compared at a time, and their least distance is found group by group: a plain minimum is much faster than its position. On a
GPU where Triton runs, its kernels do it without a table (`code_kernels`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.parts.fast.dtypes import float32
from counterfoil.parts.fast.passes import has_triton

CELLS = 64  # compared at a time on a CPU
CELLS_ON_A_GPU = 16_384
GROUP = 128  # codes whose least distance is found first


def nearest_codes(cells: Tensor, book: Tensor) -> Tensor:
    """The numbers of the codes nearest to cells; the first of equal codes.  # (M, D), (K, D) float32 → (M,) int64"""
    if cells.is_cuda and has_triton(cells.device):
        from counterfoil.parts.fast import code_kernels

        return code_kernels.nearest_codes(cells, book)
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
