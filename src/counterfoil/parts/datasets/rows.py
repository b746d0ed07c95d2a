"""Arrays on disk, read one row at a time, so that memory does not grow with the file.

Rows are read, not memory-mapped: pages of a mapped file count as the process's memory once they have been touched.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadImage

_SAFETENSORS = {
    "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


class Rows(Protocol):
    """What is needed of an array: its shape, its type, and any one row."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    def __getitem__(self, index: int, /) -> NDArray[np.generic]: ...


@dataclass(frozen=True)
class FileRows:
    """An array that lies uncompressed in a file from `offset` on, row after row."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def __post_init__(self) -> None:
        if os.path.getsize(self.path) < self.offset + self.shape[0] * self._row_bytes:
            raise ValueError("the file is truncated; copy it again")

    def __getitem__(self, index: int, /) -> NDArray[np.generic]:
        with self.path.open("rb") as file:
            file.seek(self.offset + index * self._row_bytes)
            content = file.read(self._row_bytes)
        if len(content) != self._row_bytes:
            raise BadImage(f"{self.path}: ends before row {index}; the file was truncated since it was opened")
        return np.frombuffer(content, dtype=self.dtype).reshape(self.shape[1:])

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def whole(rows: Rows) -> NDArray[np.generic]:
    """All rows at once, for arrays that are small."""
    if isinstance(rows, FileRows):
        values = np.fromfile(rows.path, dtype=rows.dtype, offset=rows.offset, count=math.prod(rows.shape))
        return values.reshape(rows.shape)
    return np.asarray(rows)


def open_npy(path: Path) -> Rows:
    """The array of a .npy file."""
    with path.open("rb") as file:
        rows = _npy(file, path, at=0)
    return rows if rows is not None else np.load(path, allow_pickle=False)


def open_npz(path: Path) -> dict[str, Rows]:
    """The arrays of a .npz file; those stored uncompressed, as numpy.savez does, are left on disk."""
    arrays: dict[str, Rows] = {}
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as loaded, path.open("rb") as file:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            rows = None
            if member.compress_type == zipfile.ZIP_STORED:
                file.seek(member.header_offset)
                header = file.read(30)  # a local file header; its last two fields are the lengths of name and extra field
                rows = _npy(file, path, at=member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30])))
            arrays[name] = rows if rows is not None else loaded[name]
    return arrays


def open_safetensors(path: Path) -> tuple[dict[str, Rows], dict[str, str]]:
    """The arrays of a safetensors file, and its notes."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > os.path.getsize(path):
            raise ValueError("not a safetensors file")
        header = json.loads(file.read(length))
    notes = header.pop("__metadata__", {})
    arrays: dict[str, Rows] = {}
    for name, entry in header.items():
        if not entry["shape"]:
            continue  # a single number has no rows
        if entry["dtype"] not in _SAFETENSORS:
            raise ValueError(f"{name!r} is of type {entry['dtype']}; use uint8 or float32")
        begin = 8 + length + entry["data_offsets"][0]
        arrays[name] = FileRows(path, begin, tuple(entry["shape"]), np.dtype(_SAFETENSORS[entry["dtype"]]))
    return arrays, notes


def _npy(file: BinaryIO, path: Path, *, at: int) -> FileRows | None:
    """The rows of the .npy content at an offset, or None where they do not lie one after the other."""
    file.seek(at)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    reader = readers.get(np.lib.format.read_magic(file))
    if reader is None:
        return None
    shape, fortran_order, dtype = reader(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded; save plain arrays")
    if fortran_order or not shape:
        return None
    return FileRows(path, file.tell(), shape, dtype)
