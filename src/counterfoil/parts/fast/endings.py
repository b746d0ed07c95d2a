"""Triton kernels for the end of a decoder: normalise, SiLU and a 3×3 convolution to three colours, and back again.

Three outputs leave a convolution with next to nothing to compute, and the library's kernels are made for many. Forward, an
activation is read once, normalised and multiplied with the weights of all nine taps and three colours, which gives 27 thin planes
in float32; these are added up shifted. So the picture is not rounded on the way, and the normalised activation never written.
Backward, the 27 numbers of the picture's gradient around each pixel are laid side by side; a product of matrices does the rest.
"""

# ruff: noqa: N803
# Capitals are constants at compile time, as Triton's own kernels write them.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread_kernel(
    x, coefficients, weight, planes, pixels, chunks,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """SiLU of x normalised, times the weights of every tap and colour.  # (N, P, C), (C, 32) → (N, 27, P) float32"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    columns, taps = tl.arange(0, COLUMNS), tl.arange(0, 32)
    real = columns < C
    coefficients += image * 4 * C
    scale = tl.load(coefficients + columns, mask=real, other=0.0)
    shift = tl.load(coefficients + C + columns, mask=real, other=0.0)
    factors = tl.load(weight + columns[:, None] * 32 + taps[None, :], mask=real[:, None], other=0.0)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    x += image.to(tl.int64) * pixels * C
    at = rows[:, None] * C + columns[None, :]
    if EVEN:
        values = tl.load(x + at).to(tl.float32)
    else:
        values = tl.load(x + at, mask=(rows[:, None] < pixels) & real[None, :], other=0.0).to(tl.float32)
    result = values * scale[None, :] + shift[None, :]
    result = result * tl.sigmoid(result)
    product = tl.dot(result.to(factors.dtype), factors, input_precision="ieee")  # (ROWS, 32)
    planes += image.to(tl.int64) * 27 * pixels
    tl.store(planes + taps[None, :] * pixels + rows[:, None], product, mask=(taps[None, :] < 27) & (rows[:, None] < pixels))


@triton.jit
def gather_kernel(planes, bias, out, height, width, chunks, SIZE: tl.constexpr):
    """The planes of all taps, each shifted by its place, added up for every colour.  # (N, 27, P) → (N, 3, P) float32"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    pixels = height * width
    at = chunk * SIZE + tl.arange(0, SIZE)
    row, column = at // width, at % width
    planes += image.to(tl.int64) * 27 * pixels
    out += image.to(tl.int64) * 3 * pixels
    for colour in tl.static_range(3):
        total = tl.zeros((SIZE,), tl.float32) + tl.load(bias + colour)
        for tap in tl.static_range(9):
            there_row, there_column = row + (tap // 3 - 1), column + (tap % 3 - 1)
            inside = (there_row >= 0) & (there_row < height) & (there_column >= 0) & (there_column < width)
            total += tl.load(planes + (tap * 3 + colour) * pixels + there_row * width + there_column, mask=inside, other=0.0)
        tl.store(out + colour * pixels + at, total, mask=at < pixels)


@triton.jit
def around_kernel(gradient, around, height, width, chunks, SIZE: tl.constexpr):
    """The gradient of pictures around every pixel, by tap and colour.  # (N, 3, P) float32 → (N, P, 32)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    pixels = height * width
    at, taps = chunk * SIZE + tl.arange(0, SIZE), tl.arange(0, 32)
    tap, colour = taps // 3, taps % 3
    row = (at // width)[:, None] - (tap // 3 - 1)[None, :]
    column = (at % width)[:, None] - (tap % 3 - 1)[None, :]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (taps[None, :] < 27)
    gradient += image.to(tl.int64) * 3 * pixels
    found = tl.load(gradient + colour[None, :] * pixels + row * width + column, mask=inside, other=0.0)
    around += image.to(tl.int64) * pixels * 32
    tl.store(around + at[:, None] * 32 + taps[None, :], found.to(around.dtype.element_ty), mask=at[:, None] < pixels)
