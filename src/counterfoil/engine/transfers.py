"""Tensors on their way from a GPU, without making it wait: copied behind what was launched so far, and looked at later.

Those who time a GPU do wait, with `settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Arriving = Callable[[], list[Tensor]]
"""Waits for tensors to arrive in main memory and gives them."""


def fetched(tensors: Sequence[Tensor]) -> Arriving:
    """The tensors in main memory: at once from a CPU, when they have arrived from elsewhere."""
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


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; on a GPU its copying waits for nothing here."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def settle(device: torch.device | str) -> None:
    """Wait until a GPU has done what it was given, as it answers before that; other devices are done when they answer."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
