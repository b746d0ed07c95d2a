"""Small images for data sets: each of a colour of its own, so that the right one is told from the others."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def shade(number: int, size: tuple[int, int] = (12, 10)) -> Image.Image:
    """A plain image whose red is its number."""
    return Image.new("RGB", size, (number, 100, 200))


def png(number: int) -> bytes:
    file = io.BytesIO()
    shade(number).save(file, format="PNG")
    return file.getvalue()


def shard(path: Path, files: Mapping[str, bytes]) -> Path:
    """A tar file."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def number_of(image: Tensor) -> int:
    """The number an image was made with."""
    return round(float(image[0].mean()) * 255)


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random bytes.  # → (count, *shape) uint8"""
    return torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8).numpy()


DIGITS = np.array([3, 0, 9, 1, 2, 3], dtype=np.uint8)


def idx(folder: Path, prefix: str = "t10k") -> np.ndarray:
    """MNIST's files with random images."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = noise(len(DIGITS), 28, 28)
    for name, values in (("images-idx3", pictures), ("labels-idx1", DIGITS)):
        content = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
        file = folder / f"{prefix}-{name}-ubyte"
        file.write_bytes(content)
    return pictures
