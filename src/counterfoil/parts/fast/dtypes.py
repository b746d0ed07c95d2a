"""Dtypes that a device computes in, and the contexts that hold float32 or bf16 to what they say."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import Precision

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

BY_DEVICE = "float32, and bfloat16 on a GPU that has it"  # the default of parts that are made fast, in words
AMPERE = (8, 0)  # compute capability from which on there is bf16


def has_bf16(device: str | torch.device) -> bool:
    """True if a GPU computes in bf16 and does not only emulate it. One that cannot be asked here is taken to have it."""
    import torch  # takes a while, and a specification for a CPU need not wait for it

    if torch.version.hip or not torch.cuda.is_available():
        return True
    try:
        return torch.cuda.get_device_capability(device) >= AMPERE
    except (RuntimeError, AssertionError, ValueError):  # no such device: reported where it is to be used
        return True


def with_supported_precision(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a specification whose parts compute in bf16 by default: with float32 where the GPU lacks it."""
    device, engine = str(values.get("device", "")), values.get("engine") or {}
    chosen = not isinstance(engine, Mapping) or "precision" in engine
    if chosen or not device.startswith("cuda") or has_bf16(device):
        return dict(values)
    log.warning("%s has no bf16: the run computes in float32, which takes longer", _name(device))
    return {**values, "engine": {**engine, "precision": "float32"}}


def dtype_for(asked: str | None, device: torch.device) -> torch.dtype:
    """The dtype networks compute in: the one asked for; else bf16 on a GPU that has it, and float32."""
    import torch

    if asked is not None:
        if asked == "bfloat16":
            _refuse_emulation(device)
        found: torch.dtype = getattr(torch, asked)
        return found
    if device.type != "cuda":
        return torch.float32
    if has_bf16(device):
        return torch.bfloat16
    log.warning("%s has no bf16: networks compute in float32, which takes longer", _name(device))
    return torch.float32


def check_precision(precision: Precision, device: torch.device) -> None:
    """Reject a precision the GPU does not support; warn of one that does not make a CPU faster."""
    if precision != "bf16":
        return
    if device.type == "cuda":
        _refuse_emulation(device)
    elif device.type == "cpu" and not _cpu_has_bf16():
        log.warning("this CPU emulates bf16; float32 is faster")


@contextlib.contextmanager
def computing(precision: Precision, device: torch.device, *, low: bool = True) -> Iterator[None]:
    """Compute in `precision` inside. Without `low` there is no autocast: float32 by TF32 kernels, unless float32 is asked for."""
    import torch

    with contextlib.ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(_kernels(exact=precision == "float32"))
        if precision == "bf16" and low:
            stack.enter_context(torch.autocast(device.type, dtype=torch.bfloat16))
        yield


@contextlib.contextmanager
def float32(device: torch.device) -> Iterator[None]:
    """Compute in float32 inside, whatever the surroundings compute in: no autocast, no TF32."""
    import torch

    with torch.autocast(device.type, enabled=False), computing("float32", device):
        yield


@contextlib.contextmanager
def _kernels(*, exact: bool) -> Iterator[None]:
    """Allow TF32 kernels for float32 products, unless these are to be exact.

    PyTorch leaves TF32 on for convolutions; float32 here means float32. cuDNN never tries its algorithms out: every process
    would choose others, and the last digits of every result with them.
    """
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = not exact, not exact, False, exact
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before


def _cpu_has_bf16() -> bool:
    """True if this CPU has bf16 instructions. oneDNN's own answer is also yes where it only emulates them with AVX-512."""
    import torch

    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _refuse_emulation(device: torch.device) -> None:
    if device.type == "cuda" and not has_bf16(device):
        raise BadSpec(f"{_name(device)} has no bf16 and would only emulate it, slowly; ask for float32")


def _name(device: str | torch.device) -> str:
    import torch

    return f"{torch.cuda.get_device_name(device)} ({device})"
