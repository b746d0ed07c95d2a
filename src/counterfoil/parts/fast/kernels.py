"""Triton kernels for group normalisation and SiLU on channels-last activations: every pass over them counts.

An activation is seen as (images, pixels, channels). A normalisation comes down to four numbers an image and channel, its
coefficients: z = x · scale + shift is what the SiLU gets, and x · rate + offset is x normalised, before gain and bias. So a
forward pass reads once for the moments and once to apply them, and a backward pass likewise. Sums go through partial sums of
chunks of pixels, in a fixed order and in float32, never through atomics: results are the same every time.
"""

# ruff: noqa: N803, SIM108
# Capitals are constants at compile time, as Triton's own kernels write them; branches on them are taken then, too.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _store_moments(partials, pivot, once, twice, count, columns, C: tl.constexpr):
    """A chunk's mean and squared deviations, from the sums of deviations from `pivot` and of their squares."""
    tl.store(partials + columns, pivot + once / count, mask=columns < C)
    tl.store(partials + C + columns, tl.maximum(twice - once * once / count, 0.0), mask=columns < C)


@triton.jit
def _before_silu(values, slope, scale, shift):
    """The gradient before the SiLU from that after it.  # (R, C), (R, C), (C,), (C,) → (R, C)"""
    result = values * scale[None, :] + shift[None, :]
    share = tl.sigmoid(result)
    return slope * share * (1.0 + result * (1.0 - share))


@triton.jit
def _store_slopes(coefficients, partials, once, along, columns, C: tl.constexpr):
    """A chunk's sums of the gradient and of it times x normalised, from that and from it times x."""
    rate = tl.load(coefficients + 2 * C + columns, mask=columns < C, other=0.0)
    offset = tl.load(coefficients + 3 * C + columns, mask=columns < C, other=0.0)
    tl.store(partials + columns, once, mask=columns < C)
    tl.store(partials + C + columns, along * rate + once * offset, mask=columns < C)


@triton.jit
def moments_kernel(
    x, partials, pixels, chunks, loops,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Mean and squared deviations of every channel over a chunk of pixels.  # (N, P, C) → (N, chunks, 2, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    x += image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    first = chunk * loops * UNROLL * ROWS
    rows = first + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & (columns[None, :] < C)
    if EVEN:
        values = tl.load(x + at).to(tl.float32)
    else:
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    # Deviations are taken from the first rows' mean, so that a mean far from zero costs no digits.
    pivot = tl.sum(values, 0) / tl.minimum(pixels - first, ROWS)
    once = tl.zeros((ROWS, COLUMNS), tl.float32)
    twice = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(loops):
        for _ in tl.static_range(UNROLL):  # several loads on their way at a time, and sums that fit into registers
            if EVEN:
                apart = tl.load(x + at).to(tl.float32) - pivot[None, :]
            else:
                inside = (rows[:, None] < pixels) & (columns[None, :] < C)
                apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - pivot[None, :]
                apart = tl.where(inside, apart, 0.0)
            once += apart
            twice += apart * apart
            rows += ROWS
            at += ROWS * C
    count = tl.minimum(pixels - first, loops * UNROLL * ROWS)
    _store_moments(partials + program.to(tl.int64) * 2 * C, pivot, tl.sum(once, 0), tl.sum(twice, 0), count, columns, C)


@triton.jit
def join_kernel(
    kept, change, bias, out, partials, pixels, chunks, loops,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """kept + change + bias, and the moments of the result on the way.  # (N, P, C) twice, (C,) → (N, P, C), (N, chunks, 2, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    constant = tl.load(bias + columns, mask=columns < C, other=0.0)
    first = chunk * loops * UNROLL * ROWS
    rows = first + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & (columns[None, :] < C)
    if EVEN:
        values = tl.load(kept + base + at).to(tl.float32) + tl.load(change + base + at).to(tl.float32)
    else:
        values = tl.load(kept + base + at, mask=inside, other=0.0).to(tl.float32)
        values += tl.load(change + base + at, mask=inside, other=0.0).to(tl.float32)
    pivot = tl.sum(values, 0) / tl.minimum(pixels - first, ROWS) + constant
    once = tl.zeros((ROWS, COLUMNS), tl.float32)
    twice = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(loops):
        for _ in tl.static_range(UNROLL):
            if EVEN:
                values = tl.load(kept + base + at).to(tl.float32) + tl.load(change + base + at).to(tl.float32)
                rounded = (values + constant[None, :]).to(out.dtype.element_ty)
                tl.store(out + base + at, rounded)
                apart = rounded.to(tl.float32) - pivot[None, :]
            else:
                inside = (rows[:, None] < pixels) & (columns[None, :] < C)
                values = tl.load(kept + base + at, mask=inside, other=0.0).to(tl.float32)
                values += tl.load(change + base + at, mask=inside, other=0.0).to(tl.float32)
                rounded = (values + constant[None, :]).to(out.dtype.element_ty)
                tl.store(out + base + at, rounded, mask=inside)
                apart = tl.where(inside, rounded.to(tl.float32) - pivot[None, :], 0.0)
            once += apart
            twice += apart * apart
            rows += ROWS
            at += ROWS * C
    count = tl.minimum(pixels - first, loops * UNROLL * ROWS)
    _store_moments(partials + program.to(tl.int64) * 2 * C, pivot, tl.sum(once, 0), tl.sum(twice, 0), count, columns, C)


@triton.jit
def coefficients_kernel(
    partials, gain, bias, before, coefficients, pixels, chunks, size, epsilon,
    C: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """From chunks' moments to an image's coefficients; `before` is a bias still to be added to x.  # → (N, 4, C)"""
    groups: tl.constexpr = C // WIDTH
    image, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    lanes = tl.arange(0, LANES)
    columns = group * WIDTH + lanes
    real = lanes < WIDTH
    constant = tl.load(before + columns, mask=real, other=0.0)
    partials += image.to(tl.int64) * chunks * 2 * C
    sums = tl.zeros((CHUNKS, LANES), tl.float32)
    for start in range(0, chunks, CHUNKS):
        which = start + tl.arange(0, CHUNKS)
        inside = (which[:, None] < chunks) & real[None, :]
        counts = tl.minimum(pixels - which * size, size).to(tl.float32)
        means = tl.load(partials + which[:, None] * 2 * C + columns[None, :], mask=inside, other=0.0)
        sums += tl.where(inside, (means + constant[None, :]) * counts[:, None], 0.0)
    count = pixels * 1.0 * WIDTH
    mean = tl.sum(tl.sum(sums, 1), 0) / count
    squares = tl.zeros((CHUNKS, LANES), tl.float32)
    for start in range(0, chunks, CHUNKS):
        which = start + tl.arange(0, CHUNKS)
        inside = (which[:, None] < chunks) & real[None, :]
        counts = tl.minimum(pixels - which * size, size).to(tl.float32)
        means = tl.load(partials + which[:, None] * 2 * C + columns[None, :], mask=inside, other=0.0)
        spreads = tl.load(partials + which[:, None] * 2 * C + C + columns[None, :], mask=inside, other=0.0)
        apart = means + constant[None, :] - mean
        squares += tl.where(inside, spreads + counts[:, None] * apart * apart, 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(tl.sum(squares, 1), 0) / count + epsilon)
    scale = tl.load(gain + columns, mask=real, other=0.0) * rate
    offset = (constant - mean) * rate
    shift = tl.load(bias + columns, mask=real, other=0.0) + (constant - mean) * scale
    coefficients += image.to(tl.int64) * 4 * C
    tl.store(coefficients + columns, scale, mask=real)
    tl.store(coefficients + C + columns, shift, mask=real)
    tl.store(coefficients + 2 * C + columns, tl.zeros((LANES,), tl.float32) + rate, mask=real)
    tl.store(coefficients + 3 * C + columns, offset, mask=real)


@triton.jit
def apply_kernel(
    x, coefficients, out, pixels, chunks,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """x normalised, and through SiLU if wanted.  # (N, P, C), (N, 4, C) → (N, P, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    real = columns < C
    coefficients += image * 4 * C
    scale = tl.load(coefficients + columns, mask=real, other=0.0)
    shift = tl.load(coefficients + C + columns, mask=real, other=0.0)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & real[None, :]
    if EVEN:
        values = tl.load(x + base + at).to(tl.float32)
    else:
        values = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
    result = values * scale[None, :] + shift[None, :]
    if SILU:
        result = result * tl.sigmoid(result)
    if EVEN:
        tl.store(out + base + at, result.to(out.dtype.element_ty))
    else:
        tl.store(out + base + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def slopes_kernel(
    x, gradient, coefficients, partials, pixels, chunks, loops,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, SILU: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient before the SiLU, and of it times x normalised, over a chunk.  # → (N, chunks, 2, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    real = columns < C
    coefficients += image * 4 * C
    scale = tl.load(coefficients + columns, mask=real, other=0.0)
    shift = tl.load(coefficients + C + columns, mask=real, other=0.0)
    rows = chunk * loops * UNROLL * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    once = tl.zeros((ROWS, COLUMNS), tl.float32)
    along = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(loops):
        for _ in tl.static_range(UNROLL):
            if EVEN:
                values = tl.load(x + base + at).to(tl.float32)
                slope = tl.load(gradient + base + at).to(tl.float32)
            else:
                inside = (rows[:, None] < pixels) & real[None, :]
                values = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
                slope = tl.load(gradient + base + at, mask=inside, other=0.0).to(tl.float32)
            if SILU:
                slope = _before_silu(values, slope, scale, shift)
            once += slope
            along += slope * values
            rows += ROWS
            at += ROWS * C
    _store_slopes(coefficients, partials + program.to(tl.int64) * 2 * C, tl.sum(once, 0), tl.sum(along, 0), columns, C)


@triton.jit
def slope_coefficients_kernel(
    partials, gain, coefficients, slopes, pixels, chunks,
    C: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """What the group's mean and spread take off the gradient: x · slopes[0] + slopes[1].  # → (N, 2, C)"""
    groups: tl.constexpr = C // WIDTH
    image, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    lanes = tl.arange(0, LANES)
    columns = group * WIDTH + lanes
    real = lanes < WIDTH
    partials += image.to(tl.int64) * chunks * 2 * C
    once = tl.zeros((CHUNKS, LANES), tl.float32)
    along = tl.zeros((CHUNKS, LANES), tl.float32)
    for start in range(0, chunks, CHUNKS):
        which = start + tl.arange(0, CHUNKS)
        inside = (which[:, None] < chunks) & real[None, :]
        once += tl.load(partials + which[:, None] * 2 * C + columns[None, :], mask=inside, other=0.0)
        along += tl.load(partials + which[:, None] * 2 * C + C + columns[None, :], mask=inside, other=0.0)
    count = pixels * 1.0 * WIDTH
    gains = tl.load(gain + columns, mask=real, other=0.0)
    mean = tl.sum(tl.sum(once, 0) * gains, 0) / count
    lean = tl.sum(tl.sum(along, 0) * gains, 0) / count
    coefficients += image.to(tl.int64) * 4 * C
    rate = tl.load(coefficients + 2 * C + columns, mask=real, other=0.0)
    offset = tl.load(coefficients + 3 * C + columns, mask=real, other=0.0)
    slopes += image.to(tl.int64) * 2 * C
    tl.store(slopes + columns, -rate * rate * lean, mask=real)
    tl.store(slopes + C + columns, -rate * (mean + offset * lean), mask=real)


@triton.jit
def back_kernel(
    x, gradient, coefficients, slopes, skip, out, pixels, chunks,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, SILU: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """The gradient of x, with that of the way around (`skip`) added.  # → (N, P, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    real = columns < C
    coefficients += image * 4 * C
    slopes += image * 2 * C
    scale = tl.load(coefficients + columns, mask=real, other=0.0)
    shift = tl.load(coefficients + C + columns, mask=real, other=0.0)
    lean = tl.load(slopes + columns, mask=real, other=0.0)
    level = tl.load(slopes + C + columns, mask=real, other=0.0)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & real[None, :]
    if EVEN:
        values = tl.load(x + base + at).to(tl.float32)
        slope = tl.load(gradient + base + at).to(tl.float32)
    else:
        values = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(gradient + base + at, mask=inside, other=0.0).to(tl.float32)
    if SILU:
        slope = _before_silu(values, slope, scale, shift)
    total = slope * scale[None, :] + values * lean[None, :] + level[None, :]
    if SKIP:
        if EVEN:
            total += tl.load(skip + base + at).to(tl.float32)
        else:
            total += tl.load(skip + base + at, mask=inside, other=0.0).to(tl.float32)
    if EVEN:
        tl.store(out + base + at, total.to(out.dtype.element_ty))
    else:
        tl.store(out + base + at, total.to(out.dtype.element_ty), mask=inside)
