"""Times of work on a device, its peak memory, what its matrix products reach, and which kernels it runs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from counterfoil.engine.device import synchronize

KINDS = {  # by what a kernel's name contains, the first that fits
    "norm and SiLU (own kernels)": (
        "moments_kernel", "apply_kernel", "gradient_sums_kernel", "back_kernel", "coefficients_kernel", "correction_kernel",
    ),
    "nearest codes": ("candidates_kernel", "split_kernel", "nearest_kernel"),
    "convolutions": ("fprop", "dgrad", "wgrad", "conv", "implicit"),
    "matrix products": ("gemm", "nvjet", "cutlass", "cublas", "splitk"),
    "attention": ("attention", "flash", "fmha"),
    "compiled pointwise": ("triton_",),
    "copies": ("copy", "memcpy", "memset", "nchwtonhwc", "nhwctonchw", "tensortransform"),
    "normalisation (library)": ("norm", "rowwisemoments", "computefused"),
    "resampling": ("upsample",),
    "reductions and softmax": ("reduce", "softmax", "sum"),
    "pointwise": ("elementwise", "vectorized", "silu", "fill"),
}  # fmt: skip


def time_call(work: Callable[[], object], device: str) -> float:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def clear(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def matmul_limit(device: str) -> float:
    """TFLOP/s of large bf16 matrix products."""
    side = 8192 if device == "cuda" else 256
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    seconds = time_call(lambda: [left @ right for _ in range(20)], device)
    return 20 * 2 * side**3 / seconds / 1e12


def profile(work: Callable[[], object], *, steps: int) -> dict[str, Any]:
    """Milliseconds per step by kind of kernel; the rest of the step the GPU waits."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiling

    with profiling(activities=[ProfilerActivity.CUDA]) as seen:
        wall = time_call(work, "cuda")
    rows: dict[str, list[float]] = {}
    kernels: list[tuple[float, int, str]] = []
    for event in seen.key_averages():
        took = event.self_device_time_total / 1e3 / steps
        if took <= 0:
            continue
        name = event.key.lower()
        kind = next((kind for kind, marks in KINDS.items() if any(mark in name for mark in marks)), "other")
        entry = rows.setdefault(kind, [0.0, 0])
        entry[0] += took
        entry[1] += event.count / steps
        kernels.append((took, round(event.count / steps), event.key[:110]))
    busy = sum(entry[0] for entry in rows.values())
    print(f"\n  a step of a batch: {wall * 1e3 / steps:.1f} ms by the clock, {busy:.1f} ms of kernels (start included)")
    for kind, (took, count) in sorted(rows.items(), key=lambda row: -row[1][0]):
        print(f"  {kind:<30} {took:8.2f} ms {count:8.1f} kernels  {100 * took / busy:5.1f} %")
    print("  the longest:")
    for took, count, name in sorted(kernels, reverse=True)[:25]:
        print(f"  {took:8.2f} ms {count:5d}  {name}")
    return {"wall_ms": wall * 1e3 / steps, "kernels_ms": busy, "kinds": {kind: entry[0] for kind, entry in rows.items()}}


class Watch:
    """Times work on the device and notes the memory it took."""

    def __init__(self, device: str) -> None:
        self.cuda = torch.device(device).type == "cuda"

    def __call__(self, work: Callable[[], object]) -> tuple[float, float | None]:
        """Seconds, and peak memory in GiB where the device says it."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        work()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None
