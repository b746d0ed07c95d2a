"""Which Fashion-MNIST garments the wardrobe uses, and which of them ship with the package.

Fashion-MNIST's labels are noisy and some garments carry loud prints of their own. A garment is kept when it

1. has surface enough to show a material: at least 180 pixels, 60 of them not on its edge;
2. is quiet: not among the fifth of its class with the strongest pattern of its own (bound taken on the training split);
3. is typical: at least nine of its ten nearest neighbours in the training split, compared by shape and shading, have its class.

The same rules with the same bounds hold for both splits. `python -m counterfoil.lab.curation` rebuilds the data files.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.lab.commands import errors_in_a_line, writable
from counterfoil.lab.garments import clean, read_split
from counterfoil.lab.randomness import bits
from counterfoil.lab.vocabulary import GARMENTS

SURFACE = 180
CORE = 60
QUIET_SHARE = 0.8
NEIGHBOURS = 10
AGREEING = 9
SHIPPED = {"report": 125, "tune": 75}  # garments of each class


def curate(folder: str | Path | None) -> dict[str, Tensor]:
    """For each split, True for every garment that is kept, over the split as published."""
    splits = {}
    for split in ("train", "test"):
        pixels, labels = read_split(folder, split)
        known = labels >= 0
        splits[split] = (known, clean(pixels[known], labels[known]), labels[known])
    _, reference, reference_labels = splits["train"]
    noise = loudness(reference)
    bounds = torch.stack([noise[reference_labels == i].quantile(QUIET_SHARE) for i in range(len(GARMENTS))])
    kept = {}
    for split, (known, pixels, labels) in splits.items():
        agreeing = agreement(pixels, labels, reference, reference_labels, same=split == "train")
        good = has_surface(pixels) & (loudness(pixels) <= bounds[labels]) & (agreeing >= AGREEING)
        kept[split] = known.clone()
        kept[split][known] = good
    return kept


def has_surface(pixels: Tensor) -> Tensor:
    """Whether a garment is large and thick enough for its material to be seen."""
    return ((pixels > 0).sum((1, 2)) >= SURFACE) & (core(pixels).sum((1, 2)) >= CORE)


def loudness(pixels: Tensor) -> Tensor:
    """How strong a garment's own pattern is: mean deviation from the local mean, away from its edge, over its brightness."""
    grey = pixels.float()
    middle = core(pixels)
    deviation = (grey - F.avg_pool2d(grey[:, None], 3, 1, 1)[:, 0]).abs() * middle
    brightness = grey.sum((1, 2)) / (grey > 0).sum((1, 2)).clamp(min=1)
    return deviation.sum((1, 2)) / middle.sum((1, 2)).clamp(min=1) / brightness


def core(pixels: Tensor) -> Tensor:
    """The pixels of a garment whose eight neighbours all belong to it."""
    outside = F.pad((pixels == 0).float()[:, None], (1, 1, 1, 1), value=1.0)
    return F.max_pool2d(outside, 3, 1)[:, 0] == 0


def agreement(pixels: Tensor, labels: Tensor, reference: Tensor, reference_labels: Tensor, *, same: bool) -> Tensor:
    """How many of a garment's nearest neighbours in the reference set have its class; `same` leaves out itself."""
    points, others = _features(pixels), _features(reference)
    lengths = (others**2).sum(1)
    counts = []
    for start in range(0, len(points), 1000):
        block = points[start : start + 1000]
        distances = lengths - 2 * block @ others.T
        if same:
            rows = torch.arange(len(block))
            distances[rows, rows + start] = torch.inf
        nearest = distances.topk(NEIGHBOURS, largest=False).indices
        counts.append((reference_labels[nearest] == labels[start : start + 1000, None]).sum(1))
    return torch.cat(counts)


def _features(pixels: Tensor) -> Tensor:
    """Shape and shading at half resolution, shading at half weight."""
    grey = pixels.float()
    shape = (grey > 0).float()
    brightness = grey.sum((1, 2), keepdim=True) / shape.sum((1, 2), keepdim=True).clamp(min=1)
    shading = ((grey / brightness).clamp(max=2) - 1) * shape
    return torch.cat([F.avg_pool2d(shape, 2).flatten(1), 0.5 * F.avg_pool2d(shading, 2).flatten(1)], dim=1)


def choose_shipped(kept: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Disjoint, balanced index lists into the test split, in a fixed random order."""
    order = bits(torch.arange(len(labels)), "ship")[:, 0].argsort(stable=True)
    chosen: dict[str, list[Tensor]] = {name: [] for name in SHIPPED}
    for label in range(len(GARMENTS)):
        candidates = order[kept[order] & (labels[order] == label)]
        start = 0
        for name, count in SHIPPED.items():
            chosen[name].append(candidates[start : start + count])
            start += count
    return {name: torch.stack(parts, dim=1).flatten() for name, parts in chosen.items()}


def main() -> None:
    """Rebuild kept.npz and garments.npz from Fashion-MNIST's idx files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    options = parser.parse_args()
    with errors_in_a_line():
        rebuild(options.data, writable(options.out))


def rebuild(folder: Path | None, out: Path) -> None:
    """Write the list of garments that are kept, and those that ship."""
    kept = curate(folder)
    packed: dict[str, Any] = {name: numpy.packbits(flags.numpy()) for name, flags in kept.items()}
    numpy.savez_compressed(out / "kept.npz", **packed)
    pixels, labels = read_split(folder, "test")
    files: dict[str, Any] = {}
    for name, index in choose_shipped(kept["test"], labels).items():
        files[f"{name}_pixels"] = clean(pixels[index], labels[index]).numpy()
        files[f"{name}_labels"] = labels[index].to(torch.uint8).numpy()
    numpy.savez_compressed(out / "garments.npz", **files)
    for split, flags in kept.items():
        print(f"{split}: {int(flags.sum())} garments kept")


if __name__ == "__main__":
    main()
