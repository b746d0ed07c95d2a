"""The nearest codes of a codebook, found without a table of all distances.

The table of a batch would be large (134 million distances for 32 pictures of 256 cells and 16,384 codes), and making it, writing
it and reading it again is what a search for codes costs. So a few cells are compared at a time, while their distances
are still near the processor, and the least is found group by group: a plain least value is much faster to find than its place.
On a GPU where Triton's kernels run one of them does it without a table (`parts/fast/codes.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.parts.fast.passes import has_triton

CELLS = 64  # compared at a time on a CPU
CELLS_ON_A_GPU = 16_384
GROUP = 128  # codes whose least distance is found first


def nearest_codes(cells: Tensor, book: Tensor) -> Tensor:
    """The numbers of the codes nearest to cells; the first of equals.  # (M, D), (K, D) → (M,) int64"""
    if cells.is_cuda and has_triton(cells.device):
        from counterfoil.parts.fast import codes

        return codes.nearest_codes(cells, book)
    lengths = book.square().sum(1)  # (K,)
    doubled = (-2 * book).T.contiguous()  # (D, K)
    at_a_time = CELLS if cells.device.type == "cpu" else CELLS_ON_A_GPU
    # A cell's own length adds the same to all its distances, so it is left out.
    return torch.cat([first_least(torch.addmm(lengths, some, doubled)) for some in cells.split(at_a_time)])


def first_least(table: Tensor) -> Tensor:
    """The column of each row's least entry; the first of equals.  # (M, K) → (M,) int64"""
    count, width = table.shape
    if width % GROUP:
        return table.argmin(1)
    groups = table.view(count, width // GROUP, GROUP)
    best = groups.amin(2).argmin(1)  # (M,)
    within = groups[torch.arange(count, device=table.device), best].argmin(1)
    return best * GROUP + within
