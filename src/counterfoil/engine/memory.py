"""How many images fit into a GPU's memory at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from counterfoil.engine.step import Ascent
from counterfoil.engine.transfers import settle

CPU_SLOTS = 32
GPU_TILE = 128  # rows of a call: what docs/speed.md was measured with
ENOUGH = 32  # rows below which keeping less and computing it again pays
SHARE = 0.7  # of the free memory that is planned with; the other arm and the graph's own pool need some
TRIED = (4, 8)  # images of the two trials


@dataclass(frozen=True)
class Fit:
    """How many rows a call can have, and whether some of each step has to be computed again for that."""

    rows: int
    recompute: bool


def rows_that_fit(ascent: Ascent, image: Tensor, *, most: int, climbing: bool) -> Fit:
    """A power of two of rows, up to `most`, by the memory that steps of a few images take on the GPU.

    `climbing`: whether steps have a gradient; models that cannot be differentiated have none.
    """
    peaks: list[float] = []
    for rows in TRIED:
        try:
            peaks.append(_peak_bytes(ascent, image, rows, climbing=climbing))
        except torch.OutOfMemoryError:
            return Fit(TRIED[0] if peaks else 1, recompute=ascent.fused)
    free = torch.cuda.mem_get_info(ascent.device)[0] + torch.cuda.memory_reserved(ascent.device)
    needed = bytes_an_image(*peaks)
    return plan_rows(free - torch.cuda.memory_allocated(ascent.device), needed, most=most, fused=ascent.fused)


def bytes_an_image(few: float, many: float) -> float:
    """What one more image adds, from what the two trials took: much of what a few take does not grow with them."""
    return max((many - few) / (TRIED[1] - TRIED[0]), 1.0)


def plan_rows(free: float, needed: float, *, most: int, fused: bool) -> Fit:
    """The rows that `free` bytes have room for if an image needs so many."""
    rows = _power_of_two(free * SHARE / needed, most)
    if rows >= min(ENOUGH, most) or not fused:
        return Fit(rows, recompute=False)
    return Fit(_power_of_two(free * SHARE / (0.6 * needed), most), recompute=True)  # about half of what is kept is left out


def _peak_bytes(ascent: Ascent, image: Tensor, rows: int, *, climbing: bool) -> float:
    """Bytes that a start and a step of so many images take at most, without compiler and graphs, which take no more.

    Algorithms are not searched for either: the search takes memory that no step takes again.
    """
    device = ascent.device
    images = image.to(device).expand(rows, *image.shape).contiguous()
    zeros = torch.zeros(rows, dtype=torch.long, device=device)
    names = ["a picture of the trial"] * rows
    plain = ascent.plain()
    settle(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    _, state = plain.start(images, zeros, zeros, names=names)
    plain.step(state, zeros, climbing=climbing, names=names)
    settle(device)
    return torch.cuda.max_memory_allocated(device) - before


def _power_of_two(count: float, most: int) -> int:
    rows = 1
    while 2 * rows <= min(count, most):
        rows *= 2
    return rows
