"""CIFAR-10 as a few small files, to take to a machine that has no network and little room.

    python -m bench.table1.pack FOLDER PACKED [--quality 80]

The binary batches (30 MB each) become one WebP mosaic each (about 3 MB), with the labels beside it. That loses detail:
train on it, then measure on the real files. `bench.table1.train --packed PACKED` reads as many of the batches as are there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 32
_ROW = 1 + 3 * SIDE * SIDE  # label, then the red, green and blue planes
_ACROSS = 100
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"


def pack(source: Path, target: Path, *, quality: int) -> None:
    """Write a mosaic and a file of labels for every batch of `source`, and for the first thousand test images."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (*_TRAIN, _TEST):
        rows = np.fromfile(source / f"{name}.bin", dtype=np.uint8).reshape(-1, _ROW)
        rows = rows[:1000] if name == _TEST else rows
        pictures = rows[:, 1:].reshape(-1, 3, SIDE, SIDE)
        Image.fromarray(_mosaic(pictures)).save(target / f"{name}.webp", quality=quality, method=6)
        (target / f"{name}.labels").write_bytes(rows[:, 0].tobytes())
        error = np.square(_read(target, name).astype(float) - pictures).mean(axis=(1, 2, 3))
        decibels = float(10 * np.log10(255**2 / np.maximum(error, 1e-9)).mean())
        print(f"{name}: {len(rows)} pictures, {(target / f'{name}.webp').stat().st_size / 1e6:.1f} MB, {decibels:.1f} dB")


def unpacked(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The pictures and labels of the batches that are there.  # (N, 3, 32, 32), (N,)"""
    found = [name for name in (_TRAIN if split == "train" else (_TEST,)) if (folder / f"{name}.webp").is_file()]
    if not found:
        raise SystemExit(f"{folder}: no packed batch for {split}; python -m bench.table1.pack makes them")
    pictures = [_read(folder, name) for name in found]
    labels = [np.frombuffer((folder / f"{name}.labels").read_bytes(), dtype=np.uint8) for name in found]
    return np.concatenate(pictures), np.concatenate(labels).astype(np.int64)


def _mosaic(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of a hundred pictures.  # (N, 3, 32, 32) → (N / 100 · 32, 3200, 3)"""
    tiles = pictures.reshape(-1, _ACROSS, 3, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(tiles.reshape(-1, _ACROSS * SIDE, 3))


def _read(folder: Path, name: str) -> NDArray[np.uint8]:
    """The pictures of a mosaic again.  # (N, 3, 32, 32)"""
    mosaic = np.asarray(Image.open(folder / f"{name}.webp").convert("RGB"))
    tiles = mosaic.reshape(-1, SIDE, _ACROSS, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, SIDE, SIDE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with CIFAR-10's binary batches")
    parser.add_argument("target", type=Path)
    parser.add_argument("--quality", type=int, default=80)
    given = parser.parse_args()
    pack(given.source.expanduser(), given.target, quality=given.quality)


if __name__ == "__main__":
    main()
