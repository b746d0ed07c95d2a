"""Milliseconds of the passes and convolutions that an FMR step is made of, at the sizes of VQGAN f16 at 256 pixels, on a GPU.

    python -m bench.fmr_kernels [--images 64] [--keep NAME]

Says for each how near it comes to the card's memory bandwidth or to its matrix products, and compares ways to do the same; and
first, whether the kernels answer as plain PyTorch does, and codes as float64 does. It ends with 1 if they do not. To rehearse it
without a GPU: TRITON_INTERPRET=1 and `--small`, which has Triton interpret the kernels on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from bench.results import add_keep, command, keep
from torch import Tensor
from torch.nn.grad import conv2d_input

from counterfoil.engine.fast import Acceleration
from counterfoil.parts.fast import codes, layers, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply matrices in bfloat16
NEAR = {torch.float32: 1e-4, HALF: 1e-2}  # relative differences that rounding makes
Row = dict[str, Any]


def milliseconds(work: Callable[[], object], repeats: int = 10) -> float:
    """Of one call, once warm."""
    if DEVICE == "cpu":
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(repeats):
        work()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / repeats


def moved(name: str, work: Callable[[], object], passes: float, one: Tensor) -> Row:
    """Time of a pass that reads and writes `one` so many times in all."""
    took = milliseconds(work)
    rate = passes * one.numel() * one.element_size() / took / 1e9
    print(f"{name:<52} {took:8.3f} ms {rate:8.2f} TB/s", flush=True)
    return {"what": name, "ms": took, "TB/s": rate}


def multiplied(name: str, work: Callable[[], object], gflop: float) -> Row:
    """Time of products of so many operations."""
    took = milliseconds(work)
    print(f"{name:<52} {took:8.3f} ms {gflop / took:8.0f} TFLOP/s", flush=True)
    return {"what": name, "ms": took, "TFLOP/s": gflop / took}


def random(*shape: int) -> Tensor:
    drawn = torch.randn(*shape, device=DEVICE, dtype=HALF)
    return drawn.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else drawn


def titled(where: str, rows: list[Row]) -> list[Row]:
    """Rows of the same place in the decoder."""
    return [{"where": where, **row} for row in rows]


def normalising(images: int, width: int, side: int) -> list[Row]:
    """The passes of a normalisation, forward and backward, against the library's copy."""
    x, gradient = random(images, width, side, side), random(images, width, side, side)
    gain = torch.ones(width, device=DEVICE)
    norm = layers.Norm(gain, gain, gain, 32, 1e-6)
    found = norm.coefficients(x, None)
    correction, around = torch.zeros(images, 2, width, device=DEVICE), random(images, width, side, side)
    print(f"\n{(where := f'{width} channels, {side} × {side}')}, {images} images")
    return titled(
        where,
        [
            moved("copy", lambda: x.clone(), 2, x),
            moved("moments", lambda: passes.moments(x), 1, x),
            moved("coefficients, moments included", lambda: norm.coefficients(x, None), 1, x),
            moved("apply", lambda: passes.apply(x, found, silu=True), 2, x),
            moved("join with moments", lambda: passes.join(x, gradient, gain), 3, x),
            moved("slopes", lambda: passes.gradient_sums(x, gradient, found, silu=True), 2, x),
            moved("back", lambda: passes.back(x, gradient, found, correction, skip=None, silu=True), 3, x),
            moved("back with skip", lambda: passes.back(x, gradient, found, correction, skip=around, silu=True), 4, x),
        ],
    )


def convolving(images: int, inputs: int, outputs: int, side: int) -> list[Row]:
    """A 3×3 convolution, forward and backward to its input."""
    x, gradient = random(images, inputs, side, side), random(images, outputs, side, side)
    weight = random(outputs, inputs, 3, 3)
    turned = weight.transpose(0, 1).flip(2, 3).contiguous(memory_format=torch.channels_last)
    gflop = images * 2 * 9 * inputs * outputs * side * side / 1e9
    print(f"\n{(where := f'3×3 convolution {inputs} → {outputs}, {side} × {side}')}")

    def library() -> object:
        one, none = [1, 1], [0, 0]
        return torch.ops.aten.convolution_backward(gradient, x, weight, None, one, one, one, False, none, 1, [True, False, False])

    return titled(
        where,
        [
            multiplied("forward", lambda: F.conv2d(x, weight, padding=1), gflop),
            multiplied("backward as a turned forward", lambda: F.conv2d(gradient, turned, padding=1), gflop),
            multiplied("backward by the library", library, gflop),
        ],
    )


def doubling(images: int, width: int, side: int) -> list[Row]:
    """Twice the side and a 3×3 convolution, in several ways; operations are those of the plain one."""
    x, gradient = random(images, width, side, side), random(images, width, 2 * side, 2 * side)
    weight = random(width, width, 3, 3)
    turned = weight.transpose(0, 1).flip(2, 3).contiguous(memory_format=torch.channels_last)
    whole = layers.upsample_weight(weight).contiguous(memory_format=torch.channels_last)
    phases = random(4 * width, width, 2, 2)
    stacked = random(images, 4 * width, side + 1, side + 1)
    back_phases = random(width, 4 * width, 2, 2)
    gflop = images * 2 * 9 * width * width * 4 * side * side / 1e9

    def added() -> Tensor:
        return F.avg_pool2d(F.conv2d(gradient, turned, padding=1), 2, divisor_override=1)

    print(f"\n{(where := f'doubling {width} channels from {side} × {side}')}")
    return titled(
        where,
        [
            multiplied(
                "interpolate, then convolve", lambda: F.conv2d(F.interpolate(x, scale_factor=2.0), weight, padding=1), gflop
            ),
            multiplied("transposed convolution", lambda: F.conv_transpose2d(x, whole, stride=2, padding=1), gflop),
            multiplied("2×2 convolution to four phases, not put in place", lambda: F.conv2d(x, phases, padding=1), gflop),
            multiplied("backward: convolve, then add 2×2", added, gflop),
            multiplied("backward of the transposed", lambda: F.conv2d(gradient, whole, stride=2, padding=1), gflop),
            multiplied("backward of four phases, already apart", lambda: F.conv2d(stacked, back_phases), gflop),
        ],
    )


def ends(images: int, side: int) -> list[Row]:
    """The decoder's end."""
    x = random(images, 128, side, side)
    found = layers.Norm(*torch.ones(3, 128, device=DEVICE), 32, 1e-6).coefficients(x, None)
    weight, bias = random(3, 128, 3, 3), torch.zeros(3, device=DEVICE)
    gradient = torch.randn(images, 3, side, side, device=DEVICE)
    print(f"\n{(where := 'the end of the decoder')}")
    apart = lambda: F.conv2d(passes.apply(x, found, silu=True), weight, padding=1)  # noqa: E731
    return titled(
        where,
        [
            moved("normalise, then convolve", apart, 1, x),
            moved("both by kernels", lambda: passes.to_rgb(x, found, weight, bias), 1, x),
            moved("back, as a convolution", lambda: conv2d_input(x.shape, weight, gradient.to(HALF), padding=1), 1, x),
            moved("back by a kernel and a product", lambda: passes.to_rgb_back(gradient, weight), 1, x),
        ],
    )


def searching(cells: Tensor, book: Tensor) -> list[Row]:
    """The search for codes."""
    gflop = 2 * cells.numel() * len(book) / 1e9
    print(f"\n{(where := f'{len(cells)} cells, {len(book)} codes')}")
    return titled(
        where,
        [
            multiplied("candidates by the kernel", lambda: codes.candidates(cells, book), gflop),
            multiplied("nearest codes", lambda: codes.nearest_codes(cells, book), gflop),
            multiplied("whole table in float32", lambda: torch.addmm(book.square().sum(1), cells, book.T).argmin(1), gflop),
        ],
    )


def other_codes(cells: Tensor, book: Tensor) -> int:
    """Codes that are not those of float64."""
    exact = torch.cat([torch.cdist(part.double(), book.double()).argmin(1) for part in cells.split(2048)])
    return int((codes.nearest_codes(cells, book) != exact).sum())


def agreement() -> dict[tuple[torch.dtype, str], float]:
    """Relative differences of every pass, by number format."""
    found = {}
    for kind in NEAR:
        x, gradient = (torch.randn(3, 96, 24, 20, device=DEVICE).to(kind) for _ in range(2))
        x, gradient = (each.contiguous(memory_format=torch.channels_last) for each in (x + 5, gradient))
        gain, bias = torch.randn(2, 96, device=DEVICE)
        weight, slope = torch.randn(3, 96, 3, 3, device=DEVICE).to(kind), torch.randn(3, 3, 24, 20, device=DEVICE)
        answers = []
        for triton in (True, False):
            with patch.object(passes, "by_triton", lambda x, triton=triton: triton):
                answers.append(_answers(x, gradient, (gain, bias), (weight, slope)))
        for name, answer in answers[0].items():
            wanted = answers[1][name].float()
            found[kind, name] = float((answer.float() - wanted).norm() / wanted.norm())
    return found


def _answers(x: Tensor, gradient: Tensor, norm: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    (gain, bias), (weight, slope), pixels = norm, end, x.shape[2] * x.shape[3]
    found = passes.coefficients(passes.moments(x), gain, bias, bias, pixels=pixels, groups=32, epsilon=1e-6)
    sums = passes.gradient_sums(x, gradient, found, silu=True)
    correction = passes.correction(sums, gain, found, pixels=pixels, groups=32)
    return {
        "apply": passes.apply(x, found, silu=True),
        "back": passes.back(x, gradient, found, correction, skip=x, silu=True),
        "join": passes.join(x, gradient, bias)[0],
        "to_rgb": passes.to_rgb(x, found, weight, bias[:3]),
        "to_rgb back": passes.to_rgb_back(slope, weight),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--small", action="store_true", help="one image and sides of an eighth, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    if DEVICE == "cpu" and not asked.small:
        sys.exit("fmr_kernels is about a GPU, and there is none here; TRITON_INTERPRET=1 and --small rehearse it on a CPU")
    images, part = (1, 16) if asked.small else (asked.images, 1)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    rows: list[Row] = []
    with torch.no_grad():
        with Acceleration().computing(torch.device(DEVICE)):  # float32 is not to be TF32 here
            apart = agreement()
        print("relative difference from plain PyTorch:")
        for (kind, name), difference in apart.items():
            print(f"  {kind} {name:<12} {difference:.2e}")
        cells = torch.randn(images * 256 // part, 256, device=DEVICE)
        book = torch.randn(16_384 // part, 256, device=DEVICE)
        others = other_codes(cells, book)
        print(f"codes that differ from float64: {others} of {len(cells)}")
        for width, side in ((128, 256), (256, 128), (256, 64), (512, 16)):
            rows += normalising(images, width, side // part)
        for inputs, outputs, side in ((128, 128, 256), (256, 128, 128), (128, 128, 128), (256, 256, 64), (512, 512, 16)):
            rows += convolving(images, inputs, outputs, side // part)
        for width, side in ((128, 128), (256, 64), (256, 32), (512, 16)):
            rows += doubling(images, width, side // part)
        rows += [*ends(images, 256 // part), *searching(cells, book)]
    details = {"codes other than float64's": others, "cells": len(cells)}
    details |= {f"differs from plain PyTorch: {name}, {kind}": found for (kind, name), found in apart.items()}
    if asked.keep:
        about = f"Passes and convolutions of an FMR step of {images} images, bf16, at the sizes of VQGAN f16 at {256 // part} px."
        print(keep(asked.keep, rows, command=command("bench.fmr_kernels"), about=about, details=details))
    sys.exit(others > 0 or any(difference > NEAR[kind] for (kind, _), difference in apart.items()))


if __name__ == "__main__":
    main()
