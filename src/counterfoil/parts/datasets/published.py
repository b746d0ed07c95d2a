"""The files in which MNIST and CIFAR and their like are published, read without unpickling anything but arrays."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadData, one_line
from counterfoil.parts.datasets.rows import FileRows, Rows

_ARRAYS = {
    ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"),
}  # fmt: skip


class GreyRows:
    """Grey pictures as colour ones: every row three times.  # (N, H, W) → (N, H, W, 3)"""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.shape = (*rows.shape, 3)
        self.dtype = rows.dtype

    def __getitem__(self, index: int, /) -> NDArray[np.generic]:
        return np.repeat(self._rows[index][..., None], 3, axis=2)


def read_idx(file: Path) -> Rows:
    """The array of bytes in an idx file, left on disk unless it is compressed."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rb") as content:
        head = content.read(4)
        if len(head) < 4 or head[:3] != b"\0\0\x08":
            raise BadData(f"{file}: not an idx file of bytes; download it again")
        shape = struct.unpack(f">{head[3]}I", content.read(4 * head[3]))
        if file.suffix != ".gz":
            try:
                return FileRows(file, 4 + 4 * head[3], shape, np.dtype(np.uint8))
            except ValueError:
                raise BadData(f"{file}: is truncated; download it again") from None
        values = np.frombuffer(content.read(), dtype=np.uint8)
    if values.size != np.prod(shape):
        raise BadData(f"{file}: is truncated; download it again")
    return values.reshape(shape)


def read_cifar_binary(files: Sequence[Path], *, labels: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures and labels of CIFAR's binary version: each row has `labels` label bytes, the last of them the finest."""
    rows = []
    for file in files:
        values = np.fromfile(file, dtype=np.uint8)
        if not values.size or values.size % (3072 + labels):
            raise BadData(f"{file}: is not of whole pictures with {labels} label bytes each; download it again")
        rows.append(values.reshape(-1, 3072 + labels))
    table = np.concatenate(rows)
    return _pictures(table[:, labels:]), table[:, labels - 1].astype(np.int64)


def read_cifar_python(files: Sequence[Path], *, label: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures and labels of CIFAR's Python version."""
    contents = [read_arrays(file) for file in files]
    try:
        pictures = np.concatenate([np.asarray(content["data"], dtype=np.uint8) for content in contents])
        return _pictures(pictures), np.concatenate([np.asarray(content[label], dtype=np.int64) for content in contents])
    except (KeyError, TypeError, ValueError):
        raise BadData(f"{files[0]}: holds no arrays data and {label}; download it again") from None


def read_arrays(file: Path) -> Any:
    """What a pickle of arrays, numbers and texts holds; anything else in it is refused, not made."""
    try:
        return _ArraysOnly(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    except BadData:
        raise
    except Exception as error:  # a damaged pickle fails in almost any way
        raise BadData(f"{file}: cannot be read ({one_line(error)}); download it again") from None


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAYS:
            raise BadData(f"refused, the file wants to run {module}.{name}; it is not the published one")
        return super().find_class(module, name)


def _pictures(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Planes of red, green and blue as pictures.  # (N, 3072) → (N, 32, 32, 3)"""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
