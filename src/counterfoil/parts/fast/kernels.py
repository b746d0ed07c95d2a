"""Triton kernels: group normalisation and SiLU on channels-last activations, the end of a decoder, gates, edges, nearest codes.

An activation is seen as (images, pixels, channels). A normalisation comes down to four numbers per image and channel, its
coefficients: z = x · scale + shift is what the SiLU gets, and x · rate + offset is x normalised, before gain and bias. So a
forward pass reads once for the moments and once to apply them, and a backward pass likewise. Sums go through partial sums of
chunks of pixels, in a fixed order and in float32, never through atomics: results are the same every time.

The end of a decoder is a 3×3 convolution to three colours, which leaves next to nothing to compute, and the library's kernels are
made for many. Forward, an activation is read once, normalised and multiplied with the weights of all nine taps and three colours,
which gives 27 thin planes in float32; these are added up shifted. So the image is not rounded on the way, and the normalised
activation never written. Backward, the 27 numbers of the image's gradient around each pixel are laid side by side; a product of
matrices does the rest.

Nearest codes are found without a table of distances. Tensor cores multiply float16, numbers of 11 digits. So a number becomes two
of them, its rounded value and the rest, and a product of float32 three products of float16; the fourth, of the rests, is smaller
than float32's own rounding. Float16 also has a small range, so every cell and every code is first scaled by a power of two, which
changes no digit.
"""

# ruff: noqa: N803, SIM108
# Capitals are constants at compile time, as Triton's own kernels write them; branches on them are taken then, too.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _load(at, inside, EVEN: tl.constexpr):
    """Values in float32; zeros outside. `EVEN`: no tile hangs over."""
    if EVEN:
        values = tl.load(at)
    else:
        values = tl.load(at, mask=inside, other=0.0)
    return values.to(tl.float32)


@triton.jit
def _store(at, values, inside, EVEN: tl.constexpr):
    """Store values in the dtype of what they go to."""
    if EVEN:
        tl.store(at, values.to(at.dtype.element_ty))
    else:
        tl.store(at, values.to(at.dtype.element_ty), mask=inside)


@triton.jit
def _load_pair(at, columns, real, C: tl.constexpr):
    """Two numbers per channel that lie one after the other.  # (2, C) → (C,), (C,)"""
    return tl.load(at + columns, mask=real, other=0.0), tl.load(at + C + columns, mask=real, other=0.0)


@triton.jit
def _before_silu(values, gradient, scale, shift):
    """The gradient before the SiLU from that after it.  # (R, C), (R, C), (C,), (C,) → (R, C)"""
    result = values * scale[None, :] + shift[None, :]
    share = tl.sigmoid(result)
    return gradient * share * (1.0 + result * (1.0 - share))


@triton.jit
def moments_kernel(
    kept, change, bias, out, partials, pixels, chunks, loops,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, UNROLL: tl.constexpr, JOIN: tl.constexpr,
):  # fmt: skip
    """Mean and squared deviations of every channel over a chunk of pixels.  # (N, P, C) → (N, chunks, 2, C)

    With `JOIN`, of kept + change + bias, which is stored on the way.  # (N, P, C) twice, (C,) → (N, P, C), (N, chunks, 2, C)
    """
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    kept += base
    change += base
    out += base
    columns = tl.arange(0, COLUMNS)
    first = chunk * loops * UNROLL * ROWS
    rows = first + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & (columns[None, :] < C)
    values = _load(kept + at, inside, EVEN)
    if JOIN:
        values += _load(change + at, inside, EVEN)
    # Deviations are taken from the first rows' mean, so that a mean far from zero costs no digits.
    pivot = tl.sum(values, 0) / tl.minimum(pixels - first, ROWS)
    if JOIN:
        constant = tl.load(bias + columns, mask=columns < C, other=0.0)
        pivot += constant
    once = tl.zeros((ROWS, COLUMNS), tl.float32)
    twice = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(loops):
        for _ in tl.static_range(UNROLL):  # several loads on their way at a time, and sums that fit into registers
            inside = (rows[:, None] < pixels) & (columns[None, :] < C)
            values = _load(kept + at, inside, EVEN)
            if JOIN:
                values += _load(change + at, inside, EVEN)
                rounded = (values + constant[None, :]).to(out.dtype.element_ty)
                _store(out + at, rounded, inside, EVEN)
                values = rounded.to(tl.float32)
            apart = values - pivot[None, :]
            if not EVEN:
                apart = tl.where(inside, apart, 0.0)
            once += apart
            twice += apart * apart
            rows += ROWS
            at += ROWS * C
    count = tl.minimum(pixels - first, loops * UNROLL * ROWS)
    total, squares = tl.sum(once, 0), tl.sum(twice, 0)
    partials += program.to(tl.int64) * 2 * C
    tl.store(partials + columns, pivot + total / count, mask=columns < C)
    tl.store(partials + C + columns, tl.maximum(squares - total * total / count, 0.0), mask=columns < C)


@triton.jit
def coefficients_kernel(
    partials, gain, bias, pending, coefficients, pixels, chunks, size, epsilon,
    C: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """From chunks' moments to an image's coefficients; `pending` is a bias still to be added to x.  # → (N, 4, C)"""
    groups: tl.constexpr = C // WIDTH
    image, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    lanes = tl.arange(0, LANES)
    columns = group * WIDTH + lanes
    real = lanes < WIDTH
    constant = tl.load(pending + columns, mask=real, other=0.0)
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
    scale, shift = _load_pair(coefficients + image * 4 * C, columns, real, C)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & real[None, :]
    result = _load(x + base + at, inside, EVEN) * scale[None, :] + shift[None, :]
    if SILU:
        result = result * tl.sigmoid(result)
    _store(out + base + at, result, inside, EVEN)


@triton.jit
def gradient_sums_kernel(
    x, gradient, coefficients, partials, pixels, chunks, loops,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, SILU: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient before the SiLU, and of it times x normalised, over a chunk.  # → (N, chunks, 2, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    real = columns < C
    scale, shift = _load_pair(coefficients + image * 4 * C, columns, real, C)
    rows = chunk * loops * UNROLL * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    once = tl.zeros((ROWS, COLUMNS), tl.float32)
    along = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(loops):
        for _ in tl.static_range(UNROLL):
            inside = (rows[:, None] < pixels) & real[None, :]
            values = _load(x + base + at, inside, EVEN)
            slope = _load(gradient + base + at, inside, EVEN)
            if SILU:
                slope = _before_silu(values, slope, scale, shift)
            once += slope
            along += slope * values
            rows += ROWS
            at += ROWS * C
    total, product = tl.sum(once, 0), tl.sum(along, 0)
    rate, offset = _load_pair(coefficients + (image * 4 + 2) * C, columns, real, C)
    partials += program.to(tl.int64) * 2 * C
    tl.store(partials + columns, total, mask=real)
    tl.store(partials + C + columns, product * rate + total * offset, mask=real)


@triton.jit
def correction_kernel(
    partials, gain, coefficients, correction, pixels, chunks,
    C: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Correction of the gradient for the group's mean and spread: x · correction[0] + correction[1].  # → (N, 2, C)"""
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
    tilt = tl.sum(tl.sum(along, 0) * gains, 0) / count
    rate, offset = _load_pair(coefficients + (image * 4 + 2) * C, columns, real, C)
    correction += image.to(tl.int64) * 2 * C
    tl.store(correction + columns, -rate * rate * tilt, mask=real)
    tl.store(correction + C + columns, -rate * (mean + offset * tilt), mask=real)


@triton.jit
def back_kernel(
    x, gradient, coefficients, correction, skip, out, pixels, chunks,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, SILU: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """The gradient of x, with that of the shortcut (`skip`) added.  # → (N, P, C)"""
    program = tl.program_id(0)
    image, chunk = program // chunks, program % chunks
    base = image.to(tl.int64) * pixels * C
    columns = tl.arange(0, COLUMNS)
    real = columns < C
    scale, shift = _load_pair(coefficients + image * 4 * C, columns, real, C)
    tilt, level = _load_pair(correction + image * 2 * C, columns, real, C)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + columns[None, :]
    inside = (rows[:, None] < pixels) & real[None, :]
    values = _load(x + base + at, inside, EVEN)
    slope = _load(gradient + base + at, inside, EVEN)
    if SILU:
        slope = _before_silu(values, slope, scale, shift)
    total = slope * scale[None, :] + values * tilt[None, :] + level[None, :]
    if SKIP:
        total += _load(skip + base + at, inside, EVEN)
    _store(out + base + at, total, inside, EVEN)


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
    scale, shift = _load_pair(coefficients + image * 4 * C, columns, real, C)
    factors = tl.load(weight + columns[:, None] * 32 + taps[None, :], mask=real[:, None], other=0.0)
    rows = chunk * ROWS + tl.arange(0, ROWS)
    x += image.to(tl.int64) * pixels * C
    at = rows[:, None] * C + columns[None, :]
    values = _load(x + at, (rows[:, None] < pixels) & real[None, :], EVEN)
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
    """The gradient of images around every pixel, by tap and colour.  # (N, 3, P) float32 → (N, P, 32)"""
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


@triton.jit
def gate_kernel(x, out, total, width, BLOCK: tl.constexpr):
    """The first half of each row times GELU of the second.  # (M, 2 × width) → (M, width)"""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < total
    first = at + (at // width) * width  # rows of x are twice as long
    value = tl.load(x + first, mask=real).to(tl.float32)
    gate = tl.load(x + first + width, mask=real).to(tl.float32)
    gelu = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    tl.store(out + at, (value * gelu).to(out.dtype.element_ty), mask=real)


@triton.jit
def edge_kernel(
    x, edge, height, width, count, chunks, stride, along, across,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """x + edge, where there is one.  # (N, h · w, C), (N, E, C) with strides (stride, along, across)"""
    program = tl.program_id(0)
    image, chunk = (program // chunks).to(tl.int64), program % chunks
    which = chunk * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    beside = which - 2 * width  # counted from the first pixel of the left column
    on_rows = beside < 0
    row = tl.where(
        on_rows, tl.where(which < width, 0, height - 1), 1 + tl.where(beside < height - 2, beside, beside - height + 2)
    )
    column = tl.where(on_rows, tl.where(which < width, which, which - width), tl.where(beside < height - 2, 0, width - 1))
    inside = (which[:, None] < count) & (columns[None, :] < C)
    at = x + image * height * width * C + (row * width + column)[:, None] * C + columns[None, :]
    more = tl.load(edge + image * stride + which[:, None] * along + columns[None, :] * across, mask=inside, other=0.0)
    values = tl.load(at, mask=inside, other=0.0).to(tl.float32) + more.to(tl.float32)
    tl.store(at, values.to(x.dtype.element_ty), mask=inside)


@triton.jit
def split_kernel(vectors, halves, scales, lengths, count, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Rounded vectors and their rests, their scales and squared lengths.  # (M, D) → (2, M, D) float16, (M,), (M,)"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.arange(0, WIDTH)
    inside = (rows[:, None] < count) & (along[None, :] < D)
    places = rows[:, None] * D + along[None, :]
    values = tl.load(vectors + places, mask=inside, other=0.0)
    # The largest number comes to lie between 64 and 128. Scales are made of their exponents' bits; 7 is the least that has both.
    exponent = tl.max(tl.abs(values), 1).to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 7), 254)
    scaled = values * ((260 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
    rounded = scaled.to(tl.float16)
    rest = (scaled - rounded.to(tl.float32)).to(tl.float16)
    tl.store(halves + places, rounded, mask=inside)
    tl.store(halves + count * D + places, rest, mask=inside)
    tl.store(scales + rows, ((exponent - 6) << 23).to(tl.float32, bitcast=True), mask=rows < count)
    tl.store(lengths + rows, tl.sum(values * values, 1), mask=rows < count)


@triton.jit
def candidates_kernel(
    cells, book, cell_scales, code_scales, lengths, found, count, codes, share,
    D: tl.constexpr, CELLS: tl.constexpr, CODES: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The nearest code of one part of the book, for a tile of cells.  # (2, M, D), (2, K, D), … → (M, parts) int64"""
    rows = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    part = tl.program_id(1)
    columns = tl.arange(0, CODES)
    depth = tl.arange(0, DEPTH)
    twice = 2.0 * tl.load(cell_scales + rows, mask=rows < count, other=0.0)
    best = tl.full((CELLS,), float("inf"), tl.float32)
    which = tl.zeros((CELLS,), tl.int32) + part * share
    for start in range(part * share, tl.minimum((part + 1) * share, codes), CODES):
        numbers = start + columns
        inside = (numbers < codes) & (numbers < (part + 1) * share)
        product = tl.zeros((CELLS, CODES), tl.float32)
        for along in tl.range(0, D, DEPTH, num_stages=STAGES):
            deep = (along + depth)[None, :] < D
            left = cells + rows[:, None] * D + (along + depth)[None, :]
            right = book + numbers[:, None] * D + (along + depth)[None, :]
            cell = tl.load(left, mask=(rows[:, None] < count) & deep, other=0.0)
            cell_rest = tl.load(left + count * D, mask=(rows[:, None] < count) & deep, other=0.0)
            code = tl.load(right, mask=inside[:, None] & deep, other=0.0)
            code_rest = tl.load(right + codes * D, mask=inside[:, None] & deep, other=0.0)
            product = tl.dot(cell_rest, tl.trans(code), product)
            product = tl.dot(cell, tl.trans(code_rest), product)
            product = tl.dot(cell, tl.trans(code), product)
        product *= tl.load(code_scales + numbers, mask=inside, other=0.0)[None, :]
        # A cell's own length adds the same to all its distances, so it is left out.
        distance = tl.load(lengths + numbers, mask=inside, other=float("inf"))[None, :] - twice[:, None] * product
        least, place = tl.min(distance, 1, return_indices=True)
        which = tl.where(least < best, start + place, which)
        best = tl.minimum(best, least)
    tl.store(found + rows * PARTS + part, which, mask=rows < count)


@triton.jit
def nearest_kernel(
    cells, book, found, nearest, count, D: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr
):
    """The nearest of a cell's candidates, the first of equals.  # (M, D), (K, D), (M, parts) → (M,) int64"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.arange(0, WIDTH)
    inside = (rows[:, None] < count) & (along[None, :] < D)
    values = tl.load(cells + rows[:, None] * D + along[None, :], mask=inside, other=0.0)
    best = tl.full((ROWS,), float("inf"), tl.float32)
    which = tl.load(found + rows * PARTS, mask=rows < count, other=0)
    for part in tl.static_range(PARTS):
        number = tl.load(found + rows * PARTS + part, mask=rows < count, other=0)
        apart = values - tl.load(book + number[:, None] * D + along[None, :], mask=inside, other=0.0)
        distance = tl.sum(apart * apart, 1)
        which = tl.where(distance < best, number, which)
        best = tl.minimum(best, distance)
    tl.store(nearest + rows, which, mask=rows < count)
