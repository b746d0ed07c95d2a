"""Fashion-MNIST garments as the wardrobe's shapes: 28x28 grey levels, 0 outside the garment and above 0 inside it."""

from __future__ import annotations

import gzip
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil.lab.vocabulary import GARMENTS

ENVIRONMENT = "COUNTERFOIL_FASHION_MNIST"
DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
Split = Literal["train", "test"]

# Fashion-MNIST's own ten classes; "shirt" and "coat" look too much like the others at 28 pixels and are left out.
_SOURCE_CLASSES = ("t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
_PREFIX = {"train": "train", "test": "t10k"}
_COUNT = {"train": 60_000, "test": 10_000}
_FAINT = 20  # grey levels below this are the halo that resizing left around a garment
_DARKEST = 30  # inside a garment nothing is darker, so that "inside" can be read off the pixels
_SEE_THROUGH = ("sandal", "bag")  # the background shows between straps and under handles


@dataclass(frozen=True)
class Garments:
    """A set of garment shapes with their classes."""

    pixels: Tensor  # (M, 28, 28) uint8, 0 outside the garment
    labels: Tensor  # (M,) int64, index into GARMENTS

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor | slice) -> Garments:
        return Garments(self.pixels[index], self.labels[index])

    def to(self, device: str | torch.device) -> Garments:
        """The same garments on another device."""
        return Garments(self.pixels.to(device), self.labels.to(device))


def shipped(split: str) -> Garments:
    """The garments that come with the package: "report" or "tune", disjoint parts of Fashion-MNIST's test split."""
    if split not in ("report", "tune"):
        raise UnknownName(f"no shipped garments named {split!r}; choose 'report' or 'tune'")
    with _archive("garments.npz") as archive:
        return Garments(torch.from_numpy(archive[f"{split}_pixels"]), torch.from_numpy(archive[f"{split}_labels"]).long())


def from_idx(folder: str | Path | None = None, split: Split = "train") -> Garments:
    """All usable garments of a Fashion-MNIST split, read from its idx files (plain or gzipped).

    Without a folder, the environment variable COUNTERFOIL_FASHION_MNIST or Debian's folder is used. Which garments are
    usable is a fixed list that ships with the package; `counterfoil.lab.curation` says by what rule it was made.
    """
    pixels, labels = read_split(folder, split)
    kept = _kept(split)
    return Garments(clean(pixels[kept], labels[kept]), labels[kept])


def fresh(folder: str | Path | None = None) -> Garments:
    """The usable garments of Fashion-MNIST's test split that ship nowhere, and that no recipe was trained on."""
    every = from_idx(folder, "test")
    known = {row.tobytes() for split in ("report", "tune") for row in shipped(split).pixels.numpy()}
    return every[torch.tensor([row.tobytes() not in known for row in every.pixels.numpy()])]


def whole(folder: str | Path | None = None) -> Garments:
    """Every garment of the eight classes in Fashion-MNIST's test split, usable or not."""
    pixels, labels = read_split(folder, "test")
    known = labels >= 0
    return Garments(clean(pixels[known], labels[known]), labels[known])


def usable(split: Split) -> tuple[int, int]:
    """How many garments of a split are usable, and of how many: Fashion-MNIST has as many of each of its classes."""
    return int(_kept(split).sum()), _COUNT[split] * len(GARMENTS) // len(_SOURCE_CLASSES)


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
    body |= _bridged(body) & (labels == GARMENTS.index("sneaker"))[:, None, None]
    hole = ~body & ~_reached_from_border(~body)
    see_through = torch.tensor([name in _SEE_THROUGH for name in GARMENTS])[labels][:, None, None]
    inside = body | (hole & (~see_through | (pixels > 0)))
    return torch.where(inside, pixels.clamp(min=_DARKEST), torch.zeros_like(pixels))


def _bridged(body: Tensor) -> Tensor:
    """Pixels with some of the body within two rows above them and within two rows below."""
    above, below = torch.zeros_like(body), torch.zeros_like(body)
    for rows in (1, 2):
        above[:, rows:] |= body[:, :-rows]
        below[:, :-rows] |= body[:, rows:]
    return above & below


def _reached_from_border(free: Tensor) -> Tensor:
    """Where a flood that starts at the picture's border gets to, moving through free pixels only."""
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


def _kept(split: Split) -> Tensor:
    """Which garments of a split are usable, in the order of its files.  # (M,) bool"""
    with _archive("kept.npz") as archive:
        return torch.from_numpy(numpy.unpackbits(archive[split], count=_COUNT[split]).astype(bool))


def _archive(name: str) -> NpzFile:
    """A data file of the package; pickled content is refused."""
    data = numpy.load(io.BytesIO((resources.files("counterfoil.lab") / "data" / name).read_bytes()), allow_pickle=False)
    assert isinstance(data, NpzFile)
    return data
