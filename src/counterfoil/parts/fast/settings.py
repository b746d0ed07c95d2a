"""How parts are made to run: number format, compiler, fused layers, graphs. Results change by rounding alone."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import EngineSpec
from counterfoil.core.spec.base import Precision
from counterfoil.parts.fast import cards

log = logging.getLogger(__name__)

PIXELS_WORTH_COMPILING = 20 * 10**9  # pixels rendered with a gradient: some eight minutes of an H200


@dataclass(frozen=True)
class Acceleration:
    """What the engine does to be fast."""

    precision: Precision = "float32"
    compile: bool = False  # model and oracle, and the generator where it has no fused layers
    fused: bool = False  # decoders rebuilt from fused layers
    graphs: bool = False  # a step is recorded once and replayed
    recompute: bool = False  # fused layers keep less and compute it again

    @classmethod
    def of(cls, layout: EngineSpec, device: torch.device, *, work: int = 0) -> Acceleration:
        """What `layout` comes to on this device. Float32 is left as plain as it can be, on any device.

        `work` is how many pixels the run renders in all; below a few minutes of it compiling takes longer than it saves.
        """
        on_card = device.type == "cuda"
        lower = layout.precision != "float32"
        return cls(
            precision=layout.precision,
            compile=layout.compile if layout.compile is not None else on_card and lower and work >= PIXELS_WORTH_COMPILING,
            fused=on_card and lower,
            graphs=on_card and lower,
        )

    @property
    def kind(self) -> torch.dtype:
        """What fused layers compute in."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @contextlib.contextmanager
    def numbers(self, device: torch.device, *, half: bool = True) -> Iterator[None]:
        """The number format of what is called inside; without `half`, nothing below TF32."""
        with contextlib.ExitStack() as stack:
            if device.type == "cuda":
                stack.enter_context(_kernels(exact=self.precision == "float32"))
            if self.precision == "bf16" and half:
                stack.enter_context(torch.autocast(device.type, dtype=torch.bfloat16))
            yield

    def gradients(self) -> contextlib.AbstractContextManager[None]:
        """Attention for gradients: in float32 a plain one, as PyTorch's kernel for that adds them up in no fixed order."""
        return contextlib.nullcontext() if self.precision == "bf16" else sdpa_kernel(SDPBackend.MATH)


@contextlib.contextmanager
def real_float32(device: torch.device) -> Iterator[None]:
    """Compute in float32 inside, whatever the surroundings compute in: no autocast, no TF32."""
    with torch.autocast(device.type, enabled=False), _kernels(exact=True) if device.type == "cuda" else contextlib.nullcontext():
        yield


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse a number format that a device has not; warn of one that does not make it faster."""
    if device.type == "cpu":
        _check_processor(precision)
    elif device.type == "cuda":
        _check_card(precision, device)


def _check_processor(precision: Precision) -> None:
    if precision == "tf32":
        raise BadSpec("precision tf32 is a number format of GPUs; on a CPU use float32, or bf16 where the processor has it")
    if precision == "bf16" and not _has_instructions():
        log.warning("this processor has no bf16 instructions and only imitates them: float32 is faster here")


def _has_instructions() -> bool:
    """Whether this processor has some for bf16. oneDNN's own answer is also yes where it only imitates them with AVX-512."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _check_card(precision: Precision, device: torch.device) -> None:
    if precision == "bf16":
        cards.check(device)
    elif precision == "tf32" and not cards.has_bf16(device):
        log.warning("this GPU has no TF32: products are computed in float32")


@contextlib.contextmanager
def _kernels(*, exact: bool) -> Iterator[None]:
    """Which kernels may compute: TF32 ones for float32 products, unless these are to be exact.

    PyTorch leaves TF32 on for convolutions; float32 here means float32. cuDNN never tries its algorithms out: every process would
    choose others, and the last digits of every result with them.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = not exact, not exact, False, exact
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
