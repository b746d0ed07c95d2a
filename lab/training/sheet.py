"""Contact sheets of the wardrobe world: `python -m lab.training.sheet OUT.png`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import UsageError
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import DISTRIBUTIONS, FACTORS, Garments, Scenes, load_shipped, sample

GAP = 2


def tile(images: Tensor, columns: int, enlarge: int = 1) -> Image.Image:
    """Images (N, 3, 64, 64) side by side in rows, enlarged without smoothing."""
    count, _, height, width = images.shape
    rows = -(-count // columns)
    sheet = torch.full((3, rows * (height + GAP) + GAP, columns * (width + GAP) + GAP), 0.1)
    for number, image in enumerate(images.cpu()):
        top = GAP + (number // columns) * (height + GAP)
        left = GAP + (number % columns) * (width + GAP)
        sheet[:, top : top + height, left : left + width] = image
    pixels = (sheet.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    picture = Image.fromarray(pixels)
    return picture.resize((picture.width * enlarge, picture.height * enlarge), Image.Resampling.NEAREST)


def cross(garments: Garments, *, down: str, across: str, seed: int, base: Scenes | None = None) -> Scenes:
    """One scene for every pair of values of two factors, everything else drawn at random (or from `base`)."""
    pairs = [(row, column) for row in range(len(FACTORS[down])) for column in range(len(FACTORS[across]))]
    scenes = base or sample(len(pairs), garments=garments, seed=seed)
    first, second = (torch.tensor(values) for values in zip(*pairs, strict=True))
    return Scenes({**scenes.factors, down: first, across: second}, scenes.garment, scenes.seed)


def main() -> None:
    """Draw a contact sheet of random scenes, or of two factors crossed."""
    parser = argparse.ArgumentParser(prog="python -m lab.training.sheet", description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--distribution", choices=DISTRIBUTIONS, default="full")
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--enlarge", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cross", nargs=2, metavar=("DOWN", "ACROSS"), choices=[name for name in FACTORS if name != "garment"])
    options = parser.parse_args()
    garments = load_shipped("report")
    columns = options.columns
    if options.cross:
        down, across = options.cross
        scenes = cross(garments, down=down, across=across, seed=options.seed)
        columns = len(FACTORS[across])
    else:
        scenes = sample(options.count, garments=garments, distribution=options.distribution, seed=options.seed)
    images, _ = render(scenes, garments)
    sheet = tile(images, columns, options.enlarge)
    try:
        sheet.save(options.out)
    except (OSError, ValueError) as error:  # a missing folder, an ending that no image has
        raise UsageError(f"{options.out}: cannot be written ({error}); give a .png in a folder that is there") from None


if __name__ == "__main__":
    main()
