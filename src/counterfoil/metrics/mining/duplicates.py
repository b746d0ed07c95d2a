"""Hashes under which pictures that look alike are near each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

BITS = 64
_SIDE, _LOW = 32, 8


def perceptual_hash(pixels: NDArray[np.uint8]) -> int:
    """Sixty-four bits of a picture: the signs of its lowest frequencies against their median.  # (H, W, 3)

    The grey picture at 32 × 32, its cosine transform, the 8 × 8 lowest frequencies. A little noise, brightness or scale
    changes few bits; another picture changes about half of them.
    """
    grey = Image.fromarray(pixels).convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    frequencies = dctn(np.asarray(grey, dtype=np.float64), norm="ortho")[:_LOW, :_LOW].reshape(-1)
    # The first is the mean brightness, which says nothing of what is shown: it takes no part in the median.
    bits = frequencies > np.median(frequencies[1:])
    return packed(bits)


def embedding_hash(embedding: NDArray[np.floating], *, bits: int = BITS) -> int:
    """The sides of fixed random planes that an embedding lies on: the share that differs is the angle over π.  # (D,)"""
    planes = np.random.default_rng(len(embedding)).standard_normal((bits, len(embedding)))
    return packed(planes @ np.asarray(embedding, dtype=np.float64) > 0)


def packed(bits: NDArray[np.bool_]) -> int:
    """The bits as one number."""
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def distance(first: int, second: int) -> int:
    """In how many bits two hashes differ."""
    return (first ^ second).bit_count()
