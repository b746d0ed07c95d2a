"""Stable hashes, seeds of images, and short names of parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_FILES = frozenset({".py", ".onnx", ".pt", ".pt2", ".pth", ".safetensors"})


def stable_hash(*names: object) -> int:
    """Return a whole number of 64 bits that looks random and is always the same for the same names."""
    text = "\0".join(map(str, names)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def image_seed(seed: int, image_id: str) -> int:
    """Return an image's own seed, from the run's seed and the image's id alone."""
    return stable_hash(seed, image_id) % 2**62


def part_name(part: Any) -> str:
    """A part's name in a specification: `timm:resnet50`, or under `name` next to its options."""
    return str(part.get("name", "")) if isinstance(part, Mapping) else str(part or "")


def short_name(name: str) -> str:
    """Name a part without the folders of a file in its name: python:lite.py:lite0 for python:/some/where/lite.py:lite0.

    A kind that stands alone, as in `ensemble:`, goes without its colon.
    """
    if "://" in name:
        return name
    name = name.removesuffix(":")
    return ":".join(PurePath(part).name if _is_path(part) else part for part in name.split(":"))


def without_folders(value: Any) -> Any:
    """A copy of plain values for others to read: strings that name files of this machine lose the folders in them."""
    if isinstance(value, Mapping):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    return short_name(value) if isinstance(value, str) and any(map(_is_path, value.split(":"))) else value


def _is_path(part: str) -> bool:
    """Tell a local file or folder from a repository such as google/vit-base-patch16-224."""
    return "/" in part.rstrip("/") and (part.startswith(("/", "~", ".")) or PurePath(part).suffix in _FILES)
