"""A GPU's copies and memory: tensors sent and fetched without waiting, and how many images fit at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from counterfoil.engine.step import Step

GPU_BATCH = 128  # rows of a call: what docs/concepts/speed.md was measured with
SHARE = 0.7  # of the free memory that is planned with; the other arm and the graph's own pool need some
TRIED = (4, 8)  # images of the two trials

Pending = Callable[[], list[Tensor]]
"""Tensors on their way to main memory: calling it waits for them."""


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; on a GPU without waiting for the copy."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def fetch(tensors: Sequence[Tensor]) -> Pending:
    """Copy tensors to main memory: at once from a CPU, behind what was launched so far from a GPU."""
    tensors = [tensor.detach() for tensor in tensors]
    if not any(tensor.is_cuda for tensor in tensors):
        here = [tensor.cpu().clone() for tensor in tensors]
        return lambda: here
    landing = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for there, place in zip(tensors, landing, strict=True):
        place.copy_(there, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def wait() -> list[Tensor]:
        arrived.synchronize()
        return [place.clone() for place in landing]  # memory that the GPU can reach is scarce

    return wait


def synchronize(device: torch.device | str) -> None:
    """Wait until a GPU has done what it was given; other devices are done when they answer."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def batch_that_fits(step: Step, image: Tensor, *, most: int, gradient: bool) -> int:
    """The largest power of two of rows, up to `most`, for which steps fit into the GPU's memory.

    `gradient`: whether steps have one; models that cannot be differentiated have none. Much of what a few images take does
    not grow with them, so two trials say what one more adds.
    """
    peaks: list[float] = []
    for rows in TRIED:
        try:
            peaks.append(_peak_bytes(step, image, rows, gradient=gradient))
        except torch.OutOfMemoryError:
            return TRIED[0] if peaks else 1
    free = torch.cuda.mem_get_info(step.device)[0] + torch.cuda.memory_reserved(step.device)
    each = max((peaks[1] - peaks[0]) / (TRIED[1] - TRIED[0]), 1.0)
    return _power_of_two((free - torch.cuda.memory_allocated(step.device)) * SHARE / each, most)


def _peak_bytes(step: Step, image: Tensor, rows: int, *, gradient: bool) -> float:
    """Bytes that a start and a step of so many images take at most, without compiler and graphs, which take no more."""
    images = image.to(step.device).expand(rows, *image.shape).contiguous()
    zeros = torch.zeros(rows, dtype=torch.long, device=step.device)
    names = ["an image of the trial"] * rows
    plain = step.plain()
    synchronize(step.device)
    torch.cuda.reset_peak_memory_stats(step.device)
    before = torch.cuda.memory_allocated(step.device)
    _, state = plain.start(images, zeros, zeros, names=names)
    plain.run(state, zeros, gradient=gradient, names=names)
    synchronize(step.device)
    return torch.cuda.max_memory_allocated(step.device) - before


def _power_of_two(count: float, most: int) -> int:
    rows = 1
    while 2 * rows <= min(count, most):
        rows *= 2
    return rows
