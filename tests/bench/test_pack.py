"""CIFAR-10 packed small: the same pictures in the same order, but for a little detail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.table1 import pack


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """Binary batches of smooth pictures, each of its own colour."""
    draw = np.random.default_rng(0)
    for name in (*pack._TRAIN, pack._TEST):
        colour = draw.integers(40, 200, (100, 3, 1, 1))
        pictures = np.clip(colour + np.arange(32)[None, None, :, None], 0, 255)
        rows = np.broadcast_to(pictures, (100, 3, 32, 32)).reshape(100, -1)
        labels = draw.integers(0, 10, (100, 1))
        np.concatenate([labels, rows], axis=1).astype(np.uint8).tofile(tmp_path / f"{name}.bin")
    return tmp_path


def test_what_is_packed_comes_back(batches: Path, tmp_path: Path) -> None:
    pack.pack(batches, tmp_path / "packed", quality=90)
    (tmp_path / "packed" / "data_batch_3.webp").unlink()  # a batch that was left at home
    pictures, labels = pack.unpacked(tmp_path / "packed", "train")
    sources = [np.fromfile(batches / f"data_batch_{number}.bin", dtype=np.uint8).reshape(-1, 3073) for number in (1, 2, 4, 5)]
    known = np.concatenate(sources)
    assert (labels == known[:, 0]).all()
    assert np.abs(pictures.reshape(400, -1).astype(int) - known[:, 1:]).mean() < 4
    with pytest.raises(SystemExit, match="no packed batch"):
        pack.unpacked(tmp_path, "test")
