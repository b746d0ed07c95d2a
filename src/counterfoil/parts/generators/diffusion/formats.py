"""A denoiser's network in the number format that the engine asks for.

Autocast would cast every weight at every call, as frozen ones are not remembered, and would normalise in float32. So below
float32 the network is copied once, in that format and laid out as the device likes it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.parts.fast import unets


class Formats:
    """A network, and a copy of it in the format of autocast as soon as that is wanted."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self._copies: dict[tuple[torch.device, torch.dtype], Any] = {}

    def forget(self) -> None:
        """Drop the copies, before the network moves."""
        self._copies.clear()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def asked(self, like: Tensor) -> Any:
        """The network to be called with tensors like these."""
        kind = autocast_format(like.device)
        if kind is None:
            return self.network
        if (like.device, kind) not in self._copies:
            lower = nn.Module.to(copy.deepcopy(self.network), dtype=kind)
            if like.is_cuda:
                lower.to(memory_format=torch.channels_last)
            unets.fuse_on(lower, like.device, kind)
            self._copies[like.device, kind] = lower
        return self._copies[like.device, kind]


def autocast_format(device: torch.device) -> torch.dtype | None:
    """What autocast is set to on a device; None if it is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
