"""Small data sets on disk, specifications over them, and the hub's cache, for tests that go the whole way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil import protocols
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.testing import pictures
from tests.fakes import CLASSES, TinyModel

FAKES = Path(__file__).with_name("fakes.py")


def label_images(count: int, size: int = 16, *, wrong_every: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Images with the labels the tiny model gives them, every fifth one another label.  # (N, H, W, 3) uint8, (N,)"""
    images = pictures(count, size)
    labels = TinyModel().logits(images).argmax(1)
    labels[::wrong_every] = (labels[::wrong_every] + 1) % len(CLASSES)
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy(), labels.numpy()


def arrays(path: Path, count: int, size: int = 16) -> Path:
    """The images as one file of arrays."""
    images, labels = label_images(count, size)
    np.savez(path, images=images, labels=labels, classes=np.array(CLASSES))
    return path


def folder(path: Path, count: int = 12, size: int = 16) -> Path:
    """The images as a folder with one sub-folder per class."""
    for name in CLASSES:
        (path / name).mkdir(parents=True, exist_ok=True)
    for at, (image, label) in enumerate(zip(*label_images(count, size), strict=True)):
        Image.fromarray(image).save(path / CLASSES[label] / f"{at:03d}.png")
    return path


def values(data: str, **changes: Any) -> dict[str, Any]:
    """A specification over tiny parts: the test plug-in's generator and oracle, and a tiny model."""
    return {
        "model": f"python:{FAKES}:TinyModel",
        "data": data,
        "generator": "brightness:",
        "oracle": "daylight:",
        "size": 16,
        "search": {"budget": 4, "step": 0.5},
        **changes,
    }


def spec(data: str, **changes: Any) -> FmrSpec:
    return protocols.parse(values(data, **changes))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def put_in_cache(monkeypatch: pytest.MonkeyPatch, cache: Path, folder: Path, repository: str) -> str:
    """Put a folder into an empty cache as if it had been downloaded from `repository`, and turn the network off."""
    home = cache / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    offline(monkeypatch, cache)
    return repository


def offline(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """No network, and this folder as the cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
