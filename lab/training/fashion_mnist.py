"""The Fashion-MNIST garments that the wardrobe uses, and those that ship with the package.

Fashion-MNIST's labels are noisy and some garments carry loud prints of their own. A garment is kept when it

1. has surface enough to show a material: at least 180 pixels, 60 of them not on its edge;
2. is quiet: not among the fifth of its class with the strongest pattern of its own (bound taken on the training split);
3. is typical: at least nine of its ten nearest neighbours in the training split, compared by shape and shading, have its class.

The same rules with the same bounds hold for both splits. `python -m lab.training.fashion_mnist` rebuilds the data files.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil_lab.drawing.canvas import bits
from counterfoil_lab.world import GARMENTS, Garments, load_shipped

ENVIRONMENT = "COUNTERFOIL_FASHION_MNIST"
DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
Split = Literal["train", "test"]
_SOURCE_CLASSES = ("t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
_PREFIX = {"train": "train", "test": "t10k"}
_COUNT = {"train": 60_000, "test": 10_000}
_FAINT = 20  # grey levels below this are the halo that resizing left around a garment
_DARKEST = 30  # inside a garment nothing is darker, so that "inside" can be read off the pixels
_SEE_THROUGH = ("sandal", "bag")  # the background shows between straps and under handles


def from_idx(folder: str | Path | None = None, split: Split = "train") -> Garments:
    """All usable garments of a Fashion-MNIST split, read from its idx files (plain or gzipped).

    Without a folder, the environment variable COUNTERFOIL_FASHION_MNIST or Debian's folder is used. Which garments are
    usable is a fixed list kept next to this file; the rule is at the top of this file.
    """
    pixels, labels = read_split(folder, split)
    kept = _select_usable(split)
    return Garments(clean(pixels[kept], labels[kept]), labels[kept])


def fresh(folder: str | Path | None = None) -> Garments:
    """The usable garments of Fashion-MNIST's test split that ship nowhere, and that no recipe was trained on."""
    every = from_idx(folder, "test")
    known = {row.tobytes() for split in ("report", "tune") for row in load_shipped(split).pixels.numpy()}
    return every[torch.tensor([row.tobytes() not in known for row in every.pixels.numpy()])]


def whole(folder: str | Path | None = None) -> Garments:
    """Every garment of the eight classes in Fashion-MNIST's test split, usable or not."""
    pixels, labels = read_split(folder, "test")
    known = labels >= 0
    return Garments(clean(pixels[known], labels[known]), labels[known])


def usable(split: Split) -> tuple[int, int]:
    """Measure how many garments of a split are usable, and of how many: Fashion-MNIST has as many of each of its classes."""
    return int(_select_usable(split).sum()), _COUNT[split] * len(GARMENTS) // len(_SOURCE_CLASSES)


def read_split(folder: str | Path | None, split: Split) -> tuple[Tensor, Tensor]:
    """A whole split as published: pixels (M, 28, 28) and labels (M,), -1 for the two classes the wardrobe leaves out."""
    if split not in _PREFIX:
        raise UnknownName(f"no Fashion-MNIST split named {split!r}; choose 'train' or 'test'")
    source = Path(folder or os.environ.get(ENVIRONMENT) or DEBIAN_FOLDER)
    images = _read_idx(source, f"{_PREFIX[split]}-images-idx3-ubyte", shape=(_COUNT[split], 28, 28))
    classes = _read_idx(source, f"{_PREFIX[split]}-labels-idx1-ubyte", shape=(_COUNT[split],))
    mapping = torch.tensor([GARMENTS.index(name) if name in GARMENTS else -1 for name in _SOURCE_CLASSES])
    return images, mapping[classes.long()]


def clean(pixels: Tensor, labels: Tensor) -> Tensor:
    """Garments cut out exactly: the halo set to 0, gaps that light cloth and pale soles left filled, the rest kept."""
    body = pixels >= _FAINT
    body |= _bridge(body) & (labels == GARMENTS.index("sneaker"))[:, None, None]
    hole = ~body & ~_reached_from_border(~body)
    see_through = torch.tensor([name in _SEE_THROUGH for name in GARMENTS])[labels][:, None, None]
    inside = body | (hole & (~see_through | (pixels > 0)))
    return torch.where(inside, pixels.clamp(min=_DARKEST), torch.zeros_like(pixels))


def _bridge(body: Tensor) -> Tensor:
    """Pixels with some of the body within two rows above them and within two rows below."""
    above, below = torch.zeros_like(body), torch.zeros_like(body)
    for rows in (1, 2):
        above[:, rows:] |= body[:, :-rows]
        below[:, :-rows] |= body[:, rows:]
    return above & below


def _reached_from_border(free: Tensor) -> Tensor:
    """Return where a flood that starts at the image's border gets to, moving through free pixels only."""
    reached = torch.zeros_like(free)
    reached[:, 0], reached[:, -1], reached[:, :, 0], reached[:, :, -1] = True, True, True, True
    reached &= free
    while True:
        grown = reached.clone()
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown[:, :, 1:] |= reached[:, :, :-1]
        grown[:, :, :-1] |= reached[:, :, 1:]
        grown &= free
        if torch.equal(grown, reached):
            return reached
        reached = grown


def _read_idx(folder: Path, name: str, *, shape: Sequence[int]) -> Tensor:
    """One idx file of unsigned bytes, checked against the shape that Fashion-MNIST has."""
    path = next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)
    if path is None:
        raise BadData(
            f"{folder}: no {name} or {name}.gz; install Debian's dataset-fashion-mnist, "
            f"or set {ENVIRONMENT} to a folder with Fashion-MNIST's idx files"
        )
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header = bytes((0, 0, 8, len(shape))) + b"".join(size.to_bytes(4, "big") for size in shape)
    if not content.startswith(header) or len(content) != len(header) + math.prod(shape):
        raise BadData(f"{path}: not Fashion-MNIST's idx file of shape {tuple(shape)}; take it from dataset-fashion-mnist")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=len(header)).view(*shape)


def _select_usable(split: Split) -> Tensor:
    """Return which garments of a split are usable, in the order of its files.  # (M,) bool"""
    with numpy.load(Path(__file__).parent / "kept.npz", allow_pickle=False) as archive:
        return torch.from_numpy(numpy.unpackbits(archive[split], count=_COUNT[split]).astype(bool))


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
    """Tell whether a garment is large and thick enough for its material to be seen."""
    return ((pixels > 0).sum((1, 2)) >= SURFACE) & (core(pixels).sum((1, 2)) >= CORE)


def loudness(pixels: Tensor) -> Tensor:
    """Return the strength of a garment's own pattern: mean deviation from the local mean, over its brightness."""
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
    """Measure how many of a garment's nearest neighbours in the reference set have its class; `same` leaves out itself."""
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
    """Rebuild kept.npz, here, and garments.npz, in the package, from Fashion-MNIST's idx files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--out", type=Path, required=True, help="folder for both files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rebuild(options.data, options.out)


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
