"""Chooses between the Triton kernels and plain PyTorch for the passes over activations."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from counterfoil.core.errors import one_line
from counterfoil.parts.fast import plain

log = logging.getLogger(__name__)

FUSION = "TRITON_DEFAULT_FP_FUSION"
"""Whether a product and a sum are rounded once. It is what kernels were measured with; releases of Triton differ, or warn."""


def passes(x: Tensor) -> ModuleType:
    """The module with the passes for activations like these: Triton's on a GPU where its kernels run, else plain PyTorch."""
    return _fused() if x.is_cuda and has_triton(x.device) else plain


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels can be built and run on a GPU, tried out once.

    It comes with torch on Linux, but needs a C compiler, and a GPU that its release still knows.
    """
    return _tried(device if device.index is not None else torch.device(device.type, torch.cuda.current_device()))


@cache
def _tried(device: torch.device) -> bool:
    problem = _problem(device)
    if problem:
        log.warning("kernels of Triton do not run on %s, and slower ones of PyTorch stand in: %s", device, problem)
    return not problem


def _problem(device: torch.device) -> str:
    """Why the kernels don't run, in a line; nothing if they do."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    os.environ.setdefault(FUSION, "1")
    try:
        from counterfoil.parts.fast import trial

        return "" if trial.succeeds(device) else "a product came out wrong"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, a linker or a driver may say
        return one_line(error)


@cache
def _fused() -> ModuleType:
    from counterfoil.parts.fast import fused  # imports triton, which takes a while and which a CPU does not need

    return fused
