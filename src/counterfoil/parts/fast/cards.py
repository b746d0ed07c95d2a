"""What number formats a GPU has, for those who have to choose one. A GPU that cannot be asked here is taken to have them all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.core.errors import BadSpec

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

NEWER = (8, 0)  # compute capability from which on there are bf16 and TF32


def has_bf16(device: str | torch.device) -> bool:
    """Whether a GPU computes in bf16 and TF32, and does not only imitate them."""
    import torch  # takes a while, and a specification for a processor need not wait for it

    if torch.version.hip or not torch.cuda.is_available():
        return True
    try:
        return torch.cuda.get_device_capability(device) >= NEWER
    except (RuntimeError, AssertionError, ValueError):  # no such device: said where it is to be used
        return True


def suited(values: Mapping[str, Any]) -> dict[str, Any]:
    """A specification's values, with float32 where no precision is asked for and the GPU has no bf16, the default."""
    device, engine = str(values.get("device", "")), values.get("engine") or {}
    chosen = values.get("protocol", "fmr") != "fmr" or not isinstance(engine, Mapping) or "precision" in engine
    if chosen or not device.startswith("cuda") or has_bf16(device):
        return dict(values)
    log.warning("%s has no bf16: the run computes in float32, which takes longer", _name(device))
    return {**values, "engine": {**engine, "precision": "float32"}}


def kind(asked: str | None, device: torch.device) -> torch.dtype:
    """The format that networks compute in: the one asked for; else bf16 on a GPU that has it, and float32."""
    import torch

    if asked is not None:
        if asked == "bfloat16":
            check(device)
        found: torch.dtype = getattr(torch, asked)
        return found
    if device.type != "cuda":
        return torch.float32
    if has_bf16(device):
        return torch.bfloat16
    log.warning("%s has no bf16: networks compute in float32, which takes longer", _name(device))
    return torch.float32


def check(device: torch.device) -> None:
    """Refuse bf16 where a GPU has none."""
    if device.type == "cuda" and not has_bf16(device):
        raise BadSpec(f"{_name(device)} has no bf16 and would only imitate it, slowly; ask for float32")


def _name(device: str | torch.device) -> str:
    import torch

    return f"{torch.cuda.get_device_name(device)} ({device})"
