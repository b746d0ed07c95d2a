"""Milliseconds of the passes and convolutions that an FMR step is made of, at the sizes of VQGAN f16 at 256 pixels, on a GPU.

    python bench/fmr_kernels.py [--images 64]

Says for each how near it comes to the card's memory bandwidth or to its matrix products, and compares ways to do the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input

from counterfoil.acceleration import codes, fused, layers


def milliseconds(work: Callable[[], object], repeats: int = 10) -> float:
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


def moved(name: str, work: Callable[[], object], passes: float, one: Tensor) -> None:
    """Time of a pass that reads and writes `one` so many times in all."""
    took = milliseconds(work)
    print(f"{name:<52} {took:8.3f} ms {passes * one.numel() * one.element_size() / took / 1e9:8.2f} TB/s", flush=True)


def multiplied(name: str, work: Callable[[], object], gflop: float) -> None:
    took = milliseconds(work)
    print(f"{name:<52} {took:8.3f} ms {gflop / took:8.0f} TFLOP/s", flush=True)


def random(*shape: int) -> Tensor:
    drawn = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    return drawn.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else drawn


def normalising(images: int, width: int, side: int) -> None:
    """The passes of a normalisation, forward and backward, against the library's."""
    x, gradient = random(images, width, side, side), random(images, width, side, side)
    gain = torch.ones(width, device="cuda")
    norm = layers.Norm(gain, gain, gain, 32, 1e-6)
    found = norm.coefficients(x, None)
    lean, around = torch.zeros(images, 2, width, device="cuda"), random(images, width, side, side)
    print(f"\n{width} channels, {side} × {side}, {images} images")
    moved("copy", lambda: x.clone(), 2, x)
    moved("moments", lambda: fused.moments(x), 1, x)
    moved("coefficients, moments included", lambda: norm.coefficients(x, None), 1, x)
    moved("apply", lambda: fused.apply(x, found, silu=True), 2, x)
    moved("join with moments", lambda: fused.join(x, gradient, gain), 3, x)
    moved("slopes", lambda: fused.slopes(x, gradient, found, silu=True), 2, x)
    moved("back", lambda: fused.back(x, gradient, found, lean, skip=None, silu=True), 3, x)
    moved("back with skip", lambda: fused.back(x, gradient, found, lean, skip=around, silu=True), 4, x)


def convolving(images: int, inputs: int, outputs: int, side: int) -> None:
    """A 3×3 convolution, forward and backward to its input."""
    x, gradient = random(images, inputs, side, side), random(images, outputs, side, side)
    weight = random(outputs, inputs, 3, 3)
    turned = weight.transpose(0, 1).flip(2, 3).contiguous(memory_format=torch.channels_last)
    gflop = images * 2 * 9 * inputs * outputs * side * side / 1e9
    print(f"\n3×3 convolution {inputs} → {outputs}, {side} × {side}")
    multiplied("forward", lambda: F.conv2d(x, weight, padding=1), gflop)
    multiplied("backward as a turned forward", lambda: F.conv2d(gradient, turned, padding=1), gflop)
    multiplied(
        "backward by the library",
        lambda: torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]
        ),
        gflop,
    )


def doubling(images: int, width: int, side: int) -> None:
    """Twice the side and a 3×3 convolution, in several ways; operations are those of the plain one."""
    x, gradient = random(images, width, side, side), random(images, width, 2 * side, 2 * side)
    weight = random(width, width, 3, 3)
    turned = weight.transpose(0, 1).flip(2, 3).contiguous(memory_format=torch.channels_last)
    whole = layers.doubled_weight(weight).contiguous(memory_format=torch.channels_last)
    phases = random(4 * width, width, 2, 2)
    stacked = random(images, 4 * width, side + 1, side + 1)
    back_phases = random(width, 4 * width, 2, 2)
    gflop = images * 2 * 9 * width * width * 4 * side * side / 1e9
    print(f"\ndoubling {width} channels from {side} × {side}")
    multiplied("interpolate, then convolve", lambda: F.conv2d(F.interpolate(x, scale_factor=2.0), weight, padding=1), gflop)
    multiplied("transposed convolution", lambda: F.conv_transpose2d(x, whole, stride=2, padding=1), gflop)
    multiplied("2×2 convolution to four phases, not put in place", lambda: F.conv2d(x, phases, padding=1), gflop)
    multiplied(
        "backward: convolve, then add 2×2",
        lambda: F.avg_pool2d(F.conv2d(gradient, turned, padding=1), 2, divisor_override=1),
        gflop,
    )
    multiplied("backward of the transposed", lambda: F.conv2d(gradient, whole, stride=2, padding=1), gflop)
    multiplied("backward of four phases, already apart", lambda: F.conv2d(stacked, back_phases), gflop)


def plain_ending(x: Tensor, found: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(fused.apply(x, found, silu=True), weight, padding=1)


def ends(images: int) -> None:
    """The decoder's end, and the search for codes."""
    x = random(images, 128, 256, 256)
    norm = layers.Norm(*torch.ones(3, 128, device="cuda"), 32, 1e-6)
    found = norm.coefficients(x, None)
    weight, bias = random(3, 128, 3, 3), torch.zeros(3, device="cuda")
    gradient = torch.randn(images, 3, 256, 256, device="cuda")
    print("\nthe end of the decoder, and codes")
    moved("normalise, then convolve", lambda: plain_ending(x, found, weight), 1, x)
    moved("both by kernels", lambda: fused.ending(x, found, weight, bias), 1, x)
    moved("back, as a convolution", lambda: conv2d_input(x.shape, weight, gradient.bfloat16(), padding=1), 1, x)
    moved("back by a kernel and a product", lambda: fused.ending_back(gradient, weight), 1, x)
    cells, book = torch.randn(images * 256, 256, device="cuda"), torch.randn(16_384, 256, device="cuda")
    gflop = 2 * cells.numel() * len(book) / 1e9
    multiplied("candidates by the kernel", lambda: codes.candidates(cells, book), gflop)
    multiplied("nearest codes", lambda: codes.nearest_codes(cells, book), gflop)
    multiplied("whole table in float32", lambda: torch.addmm(book.square().sum(1), cells, book.T).argmin(1), gflop)
    exact = torch.cat([torch.cdist(part.double(), book.double()).argmin(1) for part in cells.split(2048)])
    print(f"codes that differ from float64: {int((codes.nearest_codes(cells, book) != exact).sum())} of {len(cells)}")


def agreement() -> None:
    """The kernels against plain PyTorch on this card."""
    from counterfoil.acceleration import plain

    print("relative difference from plain PyTorch:")
    for kind in (torch.float32, torch.bfloat16):
        x, gradient = (torch.randn(3, 96, 24, 20, device="cuda").to(kind) for _ in range(2))
        x, gradient = (each.contiguous(memory_format=torch.channels_last) for each in (x + 5, gradient))
        gain, bias = torch.randn(2, 96, device="cuda")
        weight, slope = torch.randn(3, 96, 3, 3, device="cuda").to(kind), torch.randn(3, 3, 24, 20, device="cuda")
        answers: list[list[Tensor]] = []
        for by in (fused, plain):
            found = by.coefficients(by.moments(x), gain, bias, bias, pixels=480, groups=32, epsilon=1e-6)
            lean = by.slope_coefficients(by.slopes(x, gradient, found, silu=True), gain, found, pixels=480, groups=32)
            joined = by.join(x, gradient, bias)[0]
            answer = [by.apply(x, found, silu=True), by.back(x, gradient, found, lean, skip=x, silu=True), joined]
            around = by.around(slope, kind)
            lean = by.slope_coefficients(by.ending_slopes(x, around, found, weight), gain, found, pixels=480, groups=32)
            answers.append([*answer, by.ending(x, found, weight, bias[:3]), by.ending_back(x, around, found, lean, weight)])
        for name, ours, theirs in zip(("apply", "back", "join", "ending", "ending back"), *answers, strict=True):
            print(f"  {kind} {name:<12} {float((ours.float() - theirs.float()).norm() / theirs.float().norm()):.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        agreement()
        for width, side in ((128, 256), (256, 128), (256, 64), (512, 16)):
            normalising(asked.images, width, side)
        for inputs, outputs, side in ((128, 128, 256), (256, 128, 128), (128, 128, 128), (256, 256, 64), (512, 512, 16)):
            convolving(asked.images, inputs, outputs, side)
        for width, side in ((128, 128), (256, 64), (256, 32), (512, 16)):
            doubling(asked.images, width, side)
        ends(asked.images)


if __name__ == "__main__":
    main()
