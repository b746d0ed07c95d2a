"""Tiles, warps and loads at a time that the Triton kernels might work with, in milliseconds on this GPU.

    python -m bench.fmr_tiles [sums maps codes ends] [--images 64]

What is best on an H200 is what `parts/fast/fused.py` and `codes.py` have; this is how it was found.
"""

from __future__ import annotations

import argparse
import itertools

import torch
from bench.fmr_kernels import milliseconds, multiplied, random

from counterfoil.parts.fast import codes, fused, layers


def sweep(images: int) -> None:
    """Tiles, warps and loads at a time of the summing passes, in milliseconds."""
    shapes = ((128, 256), (256, 128), (256, 64))
    print("tile warps unroll loops | " + " | ".join(f"{width} × {side}²: moments join slopes" for width, side in shapes))
    held = {}
    for width, side in shapes:
        x, gradient = random(images, width, side, side), random(images, width, side, side)
        gain = torch.ones(width, device="cuda")
        held[width, side] = (x, gradient, gain)
    for (tile, warps), unroll, loops in itertools.product(
        ((512, 4), (1024, 4), (2048, 4), (2048, 8), (4096, 8)), (2, 4, 8), (4, 16)
    ):
        fused.TILE = fused.WIDE_TILE = tile
        fused.WARPS, fused.UNROLL, fused.MOST_LOOPS = warps, unroll, loops
        cells = []
        for x, gradient, gain in held.values():
            found = layers.Norm(gain, gain, gain, 32, 1e-6).coefficients(x, None)
            took = [milliseconds(lambda x=x: fused.moments(x))]
            took += [milliseconds(lambda x=x, g=gradient, b=gain: fused.join(x, g, b))]
            took += [milliseconds(lambda x=x, g=gradient, c=found: fused.slopes(x, g, c, silu=True))]
            cells.append(" ".join(f"{each:6.3f}" for each in took))
        print(f"{tile:5d} {warps:3d} {unroll:3d} {loops:3d} | " + " | ".join(cells), flush=True)


def wide_sweep(images: int) -> None:
    """Tiles and warps of the mapping passes, in milliseconds."""
    print("tile warps | apply, back, back with skip at 128 × 256² and 256 × 128²")
    for tile, warps in itertools.product((1024, 2048, 4096, 8192), (4, 8)):
        fused.MAP_TILE = fused.BACK_TILE = tile
        fused.MAP_WARPS = fused.BACK_WARPS = warps
        cells = []
        for width, side in ((128, 256), (256, 128)):
            x, gradient = random(images, width, side, side), random(images, width, side, side)
            gain = torch.ones(width, device="cuda")
            found = layers.Norm(gain, gain, gain, 32, 1e-6).coefficients(x, None)
            lean = torch.zeros(images, 2, width, device="cuda")
            took = [milliseconds(lambda x=x, c=found: fused.apply(x, c, silu=True))]
            for skip in (None, random(images, width, side, side)):
                took += [milliseconds(lambda x=x, g=gradient, c=found, s=skip, n=lean: fused.back(x, g, c, n, skip=s, silu=True))]
            cells.append(" ".join(f"{each:6.3f}" for each in took))
        print(f"{tile:5d} {warps:3d} | " + " | ".join(cells), flush=True)


def code_sweep(images: int) -> None:
    """Tiles of the search for codes."""
    cells, book = torch.randn(images * 256, 256, device="cuda"), torch.randn(16_384, 256, device="cuda")
    for (rows, columns, depth, warps), stages in itertools.product(
        (
            (64, 128, 64, 4),
            (64, 256, 32, 4),
            (128, 128, 32, 4),
            (128, 128, 32, 8),
            (128, 128, 64, 8),
            (128, 256, 32, 8),
            (256, 128, 32, 8),
        ),
        (2, 3, 4),
    ):
        codes.CELLS, codes.CODES, codes.DEPTH, codes.WARPS, codes.STAGES = rows, columns, depth, warps, stages
        named = f"codes {rows} {columns} {depth} {warps} {stages}"
        try:
            multiplied(named, lambda: codes.candidates(cells, book), 2 * cells.numel() * len(book) / 1e9)
        except Exception as error:  # too large for the card's shared memory
            print(f"{named}: {repr(error)[:80]}")


def end_sweep(images: int) -> None:
    """Pixels and warps of the decoder's end, forward and backward."""
    x = random(images, 128, 256, 256)
    found = layers.Norm(*torch.ones(3, 128, device="cuda"), 32, 1e-6).coefficients(x, None)
    weight, bias = random(3, 128, 3, 3), torch.zeros(3, device="cuda")
    gradient = torch.randn(images, 3, 256, 256, device="cuda")
    print("pixels warps | ending, back")
    for rows, warps in itertools.product((64, 128, 256), (4, 8)):
        fused.END_ROWS, fused.END_WARPS, fused.AROUND = rows, warps, rows
        took = [milliseconds(lambda: fused.ending(x, found, weight, bias))]
        took += [milliseconds(lambda: fused.ending_back(gradient, weight))]
        print(f"{rows:5d} {warps:3d} | " + " ".join(f"{each:6.3f}" for each in took), flush=True)


SWEEPS = {"sums": sweep, "maps": wide_sweep, "codes": code_sweep, "ends": end_sweep}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", default=list(SWEEPS), metavar="SWEEP", help=", ".join(SWEEPS))
    parser.add_argument("--images", type=int, default=64)
    asked = parser.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        for name in asked.which:
            SWEEPS[name](asked.images)


if __name__ == "__main__":
    main()
