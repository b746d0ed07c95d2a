"""Images as arrays, in memory or in a file, and the small sets of torchvision."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, UnknownName, did_you_mean, one_line
from counterfoil.core.tables import parse_json
from counterfoil.parts import images as pictures
from counterfoil.parts import labels as names
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import ImageSet, index
from counterfoil.parts.weights import file_sha256

TORCHVISION = ("MNIST", "FashionMNIST", "KMNIST", "CIFAR10", "CIFAR100")
_CHECKED = 8  # rows of a file whose values are checked when it is opened; every other is checked when it is loaded
_SAFETENSORS = {
    "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


@dataclass(frozen=True)
class FileRows:
    """An array in a file from `offset` on, read one row at a time.

    It is not memory-mapped: a process that touches a page of a file that was cut short since is killed.
    """

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

    def whole(self) -> NDArray[np.generic]:
        """All rows at once, for arrays that are small."""
        values = np.fromfile(self.path, dtype=self.dtype, offset=self.offset, count=math.prod(self.shape))
        return values.reshape(self.shape)

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


Rows = FileRows | NDArray[Any]
"""An array, in memory or in a file."""


@dataclass(frozen=True)
class ArrayReader:
    """Reads images from the rows of an array: (N, H, W, 3), (N, 3, H, W), or (N, H, W) in grey."""

    rows: Rows

    def load(self, sample: Sample, size: int | None) -> Tensor:
        values = self.rows[int(sample.image_id)]
        image = torch.from_numpy(np.array(values, dtype=np.float32))
        if image.ndim == 2:
            image = image.expand(3, -1, -1)
        elif image.shape[0] != 3:
            image = image.permute(2, 0, 1)
        image = image / 255 if values.dtype == np.uint8 else image
        try:
            pictures.check(image[None])
        except BadImage as problem:
            raise BadImage(f"{sample.source}: {problem}") from None
        return image.contiguous() if size is None else pictures.fit(image[None], size)[0]


@dataclass(frozen=True)
class TensorOptions:
    classes: str | Sequence[str] | None = None


def tensors(path: str, options: TensorOptions) -> ImageSet:
    """Images as arrays `images` and `labels`: tensors:FILE.npz, FILE.safetensors, or a folder of .npy files.

    `images` is (N, H, W, 3) or (N, 3, H, W), uint8 or floating point in [0, 1]; `labels` counts from 0. Class names are
    the array `classes`, a note `classes` (a JSON list) of a safetensors file, a file classes.txt in the folder, or the
    option `classes`: names, or a text file with one per line. A .npz file is loaded as a whole, the others row by row.
    """
    if not path:
        raise BadData("tensors: name a file or folder, as in tensors:photos.npz")
    source = Path(path).expanduser()
    arrays, found = _open(source)
    if options.classes is not None:
        found = names.read_names(options.classes)
    for name in ("images", "labels"):
        if name not in arrays:
            raise BadData(f"{source}: no array named {name!r}; it has {', '.join(map(repr, arrays)) or 'none'}")
    files = sorted(source.glob("*.npy")) if source.is_dir() else [source]
    return from_arrays(arrays["images"], _whole(arrays["labels"]), classes=found, name=str(source), files=files)


@dataclass(frozen=True)
class TorchvisionDataOptions:
    root: str = "data"
    split: Literal["train", "test"] = "test"
    download: bool = False


def torchvision_dataset(name: str, options: TorchvisionDataOptions) -> ImageSet:
    """A set that torchvision knows, from its root: torchvision-data:CIFAR10 (or CIFAR100, MNIST, FashionMNIST, KMNIST).

    `root` is the folder given to torchvision. Nothing is downloaded unless `download: true` is given.
    """
    from torchvision import datasets

    if name not in TORCHVISION:
        near = did_you_mean(name, TORCHVISION) or f" There are {', '.join(TORCHVISION)}."
        raise UnknownName(f"no torchvision data set named {name!r}.{near} Unpack others and use folder: or csv:")
    top, split = Path(options.root).expanduser(), options.split
    try:
        # CIFAR's files are pickles; torchvision reads them only if their MD5 hashes are those of the published ones.
        found: Any = getattr(datasets, name)(str(top), train=split == "train", download=options.download)
    except Exception as error:  # damaged files fail in almost any way
        hint = "give root, the folder that was given to torchvision, or download: true"
        problem = f"its {split} files cannot be read from {top} ({one_line(error)})"
        raise BadData(f"torchvision-data:{name}: {problem}; {hint}") from None
    classes = [str(label).partition(" - ")[0] for label in found.classes]  # "0 - zero" is called 0
    return from_arrays(np.asarray(found.data), np.asarray(found.targets), classes=classes, name=name)


def from_arrays(
    images: Rows | Tensor,
    labels: NDArray[Any] | Tensor | Sequence[int],
    *,
    classes: Sequence[str] | None = None,
    name: str = "tensors",
    files: Sequence[Path] = (),
) -> ImageSet:
    """Images and labels from arrays or tensors; image ids are the row numbers."""
    rows: Rows = images.detach().cpu().numpy() if isinstance(images, Tensor) else images
    numbers = _labels(labels, name)
    found = _classes(classes, numbers, name)
    grey, shape = len(rows.shape) == 3, tuple(rows.shape)
    if not (len(shape) == 4 and 3 in (shape[1], shape[3])) and not (grey and rows.dtype == np.uint8):
        raise BadData(f"{name}: images have the shape (N, H, W, 3) or (N, 3, H, W), got {shape}; repeat a grey channel")
    if 0 in shape[1:]:
        raise BadData(f"{name}: images of shape {shape[1:]} have no pixels")
    if len(numbers) != shape[0]:
        raise BadData(f"{name}: {shape[0]} images but {len(numbers)} labels; give one label per image")
    _check_values(rows, name)
    listed = index([f"{row:08d}" for row in range(len(numbers))], numbers, what=name)
    about = (lambda: {file.name: file_sha256(file) for file in files}) if files else partial(_content, rows, numbers)
    return ImageSet(listed, found, ArrayReader(rows), about=about, source=f"{name}[{{id}}]")


def _open(source: Path) -> tuple[dict[str, Rows], list[str] | None]:
    try:
        if source.is_dir():
            arrays: dict[str, Rows] = {file.stem: _open_npy(file) for file in sorted(source.glob("*.npy"))}
            listed = source / names.CLASSES_FILE
            return arrays, names.read_names(listed) if listed.is_file() else _strings(arrays.get("classes"))
        if source.suffix == ".npz":
            with np.load(source, allow_pickle=False) as loaded:
                arrays = {name: loaded[name] for name in loaded.files}
            return arrays, _strings(arrays.get("classes"))
        if source.suffix == ".safetensors":
            arrays, notes = _open_safetensors(source)
            return arrays, parse_json(notes["classes"], what="classes") if "classes" in notes else None
    except FileNotFoundError:
        raise BadData(f"{source}: no such file or folder") from None
    except Exception as error:  # every format has its own ways of being damaged
        raise BadData(f"{source}: cannot be read as arrays ({one_line(error)})") from None
    what = "unknown kind of file" if source.exists() else "no such file or folder"
    raise BadData(f"{source}: {what}; give a .npz, a .safetensors, or a folder with images.npy and labels.npy")


def _open_npy(path: Path) -> Rows:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with path.open("rb") as file:
        shape, fortran_order, dtype = readers[np.lib.format.read_magic(file)](file)
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded; save plain arrays")
    if fortran_order or not shape:  # its rows do not lie one after the other
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    return FileRows(path, offset, shape, dtype)


def _open_safetensors(path: Path) -> tuple[dict[str, Rows], dict[str, str]]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > os.path.getsize(path):
            raise ValueError("not a safetensors file")
        header = parse_json(file.read(length), what="its header")
    notes = header.pop("__metadata__", {})
    arrays: dict[str, Rows] = {}
    for name, entry in header.items():
        if not entry["shape"]:
            continue  # a single number has no rows
        if entry["dtype"] not in _SAFETENSORS:
            raise ValueError(f"{name!r} is of type {entry['dtype']}; use uint8 or float32")
        offset = 8 + length + entry["data_offsets"][0]
        arrays[name] = FileRows(path, offset, tuple(entry["shape"]), np.dtype(_SAFETENSORS[entry["dtype"]]))
    return arrays, notes


def _whole(rows: Rows) -> NDArray[np.generic]:
    return rows.whole() if isinstance(rows, FileRows) else np.asarray(rows)


def _strings(array: Rows | None) -> list[str] | None:
    return None if array is None else [str(name) for name in _whole(array)]


def _labels(labels: NDArray[Any] | Tensor | Sequence[int], name: str) -> NDArray[np.int64]:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise BadData(f"{name}: labels are one whole number per image, got {values.dtype} of shape {values.shape}")
    if len(values) == 0:
        raise BadData(f"{name}: no images")
    return values.astype(np.int64)


def _classes(classes: Sequence[str] | None, labels: NDArray[np.int64], name: str) -> list[str]:
    low, high = int(labels.min()), int(labels.max())
    if classes is None:
        names.class_number(str(max(high, 0)), name)
        classes = [str(number) for number in range(high + 1)]
    found = list(classes)
    if low < 0 or high >= len(found):
        raise BadData(f"{name}: labels run from {low} to {high}, but there are {len(found)} classes, counted from 0")
    names.check_classes(found, name)
    return found


def _check_values(rows: Rows, name: str) -> None:
    if rows.dtype == np.uint8:
        return
    if rows.dtype.kind != "f":
        raise BadData(f"{name}: images are uint8, or floating point in [0, 1], got {rows.dtype}")
    for row in range(0, rows.shape[0], max(1, rows.shape[0] // _CHECKED)):
        low, high = float(rows[row].min()), float(rows[row].max())
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise BadData(
                f"{name}: pixel values must lie in [0, 1], image {row} has {low:.3g} to {high:.3g}; "
                "divide 8-bit images by 255, undo normalisation"
            )


def _content(rows: Rows, labels: NDArray[np.int64]) -> Mapping[str, str]:
    total = hashlib.sha256(f"{rows.dtype} {rows.shape} {labels.tolist()}\n".encode())
    for row in range(len(labels)):
        total.update(np.ascontiguousarray(rows[row]).tobytes())
    return {"content": total.hexdigest()}
