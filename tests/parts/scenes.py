"""Images with shades, edges and noise, for tests that compare with other libraries, and files of them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """An image with smooth shades, hard edges and a little noise."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(coarse)
    draw.rectangle((width // 4, height // 5, width // 2, height // 2), fill=(255, 255, 255))
    draw.ellipse((width // 3, height // 3, width - 5, height - 3), fill=(0, 30, 0))
    noise = random.normal(0, 6, (height, width, 3))
    return Image.fromarray((np.asarray(coarse) + noise).clip(0, 255).astype(np.uint8))


def boxes(seed: int, width: int, height: int) -> Image.Image:
    """An image with shades, six boxes and noise, on which random networks disagree."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(coarse)
    for _ in range(6):
        left, top = random.integers(0, width - 10), random.integers(0, height - 10)
        box = (left, top, left + random.integers(5, width // 2), top + random.integers(5, height // 2))
        draw.rectangle(box, fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    noisy = np.asarray(coarse) + random.normal(0, 5, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def save(picture: Image.Image, path: Path, **options: object) -> Path:
    """The image in a file."""
    picture.save(path, **options)
    return path


def tensor(picture: Image.Image) -> torch.Tensor:
    """The image as the package has it.  # (3, H, W)"""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


def to_batch(*pictures: Image.Image) -> torch.Tensor:
    """Images as the parts exchange them.  # → (N, 3, H, W)"""
    return torch.stack([tensor(picture) for picture in pictures])


def header_of_png(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds no pixels: decoding it would fail, its header alone can be read."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    data = b"IDAT" + zlib.compress(b"")
    return b"\x89PNG\r\n\x1a\n" + body + struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
