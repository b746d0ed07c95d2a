"""Pictures as arrays, in memory or in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, one_line
from counterfoil.parts import images as pictures
from counterfoil.parts import labels as names
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets import rows
from counterfoil.parts.weights import file_sha256

LOOKED_AT = 8  # rows of a file whose values are looked at when it is opened; every other is checked when it is loaded


def tensors(path: str, *, classes: str | Sequence[str] | None = None) -> ArrayDataset:
    """Pictures as arrays `images` and `labels`: tensors:FILE.npz, FILE.safetensors, or a folder of .npy files.

    `images` is (N, H, W, 3) or (N, 3, H, W), uint8 or floating point in [0, 1]; `labels` counts from 0. Class names are
    the array `classes`, a note `classes` (a JSON list) of a safetensors file, a file classes.txt in the folder, or the
    option `classes`: names, or a text file with one a line. Uncompressed files are read row by row.
    """
    if not path:
        raise BadData("tensors: name a file or folder, as in tensors:photos.npz")
    source = Path(path).expanduser()
    arrays, found = _open(source)
    if classes is not None:
        found = names.read_names(classes)
    for name in ("images", "labels"):
        if name not in arrays:
            raise BadData(f"{source}: no array named {name!r}; it has {', '.join(map(repr, arrays)) or 'none'}")
    given = rows.whole(arrays["labels"])
    files = sorted(source.glob("*.npy")) if source.is_dir() else [source]
    return ArrayDataset(arrays["images"], given, classes=found, name=str(source), files=files)


class ArrayDataset:
    """Pictures and labels from arrays or tensors; image ids are the row numbers."""

    def __init__(
        self,
        images: rows.Rows | Tensor,
        labels: NDArray[Any] | Tensor | Sequence[int],
        *,
        classes: Sequence[str] | None = None,
        name: str = "tensors",
        files: Sequence[Path] = (),
    ) -> None:
        self._images = images.detach().cpu().numpy() if isinstance(images, Tensor) else images
        self._labels = _labels(labels, name)
        self._name = name
        self._files = files
        self.classes: Sequence[str] = _classes(classes, self._labels, name)
        self._channels_first = _channels_first(self._images.shape, name)
        if len(self._labels) != self._images.shape[0]:
            raise BadData(f"{name}: {self._images.shape[0]} images but {len(self._labels)} labels; give one label an image")
        self._check_values()

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[Sample]:
        for index, label in enumerate(self._labels):
            yield Sample(f"{index:08d}", int(label), f"{self._name}[{index}]")

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture of a row, square with side `size` if given.  # → (3, H, W)"""
        values = self._images[int(sample.image_id)]
        image = torch.from_numpy(np.array(values, dtype=np.float32))
        image = image if self._channels_first else image.permute(2, 0, 1)
        image = image / 255 if values.dtype == np.uint8 else image
        try:
            pictures.check(image[None])
        except BadImage as problem:
            raise BadImage(f"{sample.source}: {problem}") from None
        return image.contiguous() if size is None else pictures.fit(image[None], size)[0]

    def provenance(self) -> dict[str, str]:
        """The hashes of the files the arrays come from; of arrays in memory, that of what they hold."""
        return {file.name: file_sha256(file) for file in self._files} or {"content": self._content}

    @cached_property
    def _content(self) -> str:
        total = hashlib.sha256(f"{self._images.dtype} {self._images.shape} {self._labels.tolist()}\n".encode())
        for index in range(len(self)):
            total.update(np.ascontiguousarray(self._images[index]).tobytes())
        return total.hexdigest()

    def _check_values(self) -> None:
        if self._images.dtype == np.uint8:
            return
        if self._images.dtype.kind != "f":
            raise BadData(f"{self._name}: images are uint8, or floating point in [0, 1], got {self._images.dtype}")
        every = max(1, len(self) // LOOKED_AT)
        for index in range(0, len(self), every):
            values = self._images[index]
            low, high = float(values.min()), float(values.max())
            if not (low >= -1e-3 and high <= 1 + 1e-3):
                raise BadData(
                    f"{self._name}: pixel values must lie in [0, 1], image {index} has {low:.3g} to {high:.3g}; "
                    "divide 8-bit images by 255, undo normalisation"
                )


def _open(source: Path) -> tuple[dict[str, rows.Rows], list[str] | None]:
    try:
        if source.is_dir():
            arrays = {file.stem: rows.open_npy(file) for file in sorted(source.glob("*.npy"))}
            listed = source / names.CLASSES_FILE
            return arrays, names.read_names(listed) if listed.is_file() else _strings(arrays.get("classes"))
        if source.suffix == ".npz":
            arrays = rows.open_npz(source)
            return arrays, _strings(arrays.get("classes"))
        if source.suffix == ".safetensors":
            arrays, notes = rows.open_safetensors(source)
            return arrays, json.loads(notes["classes"]) if "classes" in notes else None
    except FileNotFoundError:
        raise BadData(f"{source}: no such file or folder") from None
    except Exception as error:  # every format has its own ways of being damaged
        raise BadData(f"{source}: cannot be read as arrays ({one_line(error)})") from None
    what = "unknown kind of file" if source.exists() else "no such file or folder"
    raise BadData(f"{source}: {what}; give a .npz, a .safetensors, or a folder with images.npy and labels.npy")


def _strings(array: rows.Rows | None) -> list[str] | None:
    return None if array is None else [str(name) for name in rows.whole(array)]


def _labels(labels: NDArray[Any] | Tensor | Sequence[int], name: str) -> NDArray[np.int64]:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise BadData(f"{name}: labels are one whole number an image, got {values.dtype} of shape {values.shape}")
    if len(values) == 0:
        raise BadData(f"{name}: no images")
    return values.astype(np.int64)


def _classes(classes: Sequence[str] | None, labels: NDArray[np.int64], name: str) -> list[str]:
    low, high = int(labels.min()), int(labels.max())
    found = [str(index) for index in range(high + 1)] if classes is None else list(classes)
    if low < 0 or high >= len(found):
        raise BadData(f"{name}: labels run from {low} to {high}, but there are {len(found)} classes, counted from 0")
    if len(found) < 2:
        raise BadData(f"{name}: only one class; a test of a classifier needs two or more")
    if len(set(found)) < len(found):
        twice = next(word for word in found if found.count(word) > 1)
        raise BadData(f"{name}: two classes are called {twice!r}; give each its own name")
    return found


def _channels_first(shape: tuple[int, ...], name: str) -> bool:
    if len(shape) == 4 and shape[3] == 3 and shape[1] != 3:
        return False
    if len(shape) == 4 and shape[1] == 3:
        return True
    raise BadData(f"{name}: images have the shape (N, H, W, 3) or (N, 3, H, W), got {tuple(shape)}; repeat a grey channel")
