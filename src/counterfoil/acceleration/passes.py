"""Chooses between the Triton kernels and plain PyTorch for the passes over activations."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

from torch import Tensor

from counterfoil.acceleration import plain


def passes(x: Tensor) -> ModuleType:
    """The module with the passes for activations like these: Triton's on a GPU that has it, else plain PyTorch."""
    return _fused() if x.is_cuda and has_triton() else plain


@cache
def has_triton() -> bool:
    """Whether Triton is installed; it comes with torch on Linux."""
    return find_spec("triton") is not None


@cache
def _fused() -> ModuleType:
    from counterfoil.acceleration import fused  # imports triton, which takes a while and which a CPU does not need

    return fused
