"""The small classic data sets that torchvision knows, from its folders."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from counterfoil.core.errors import BadData, UnknownName, one_line
from counterfoil.parts.datasets import published
from counterfoil.parts.datasets.rows import Rows, whole
from counterfoil.parts.datasets.tensors import ArrayDataset

Split = Literal["train", "test"]
Held = tuple[Rows, Any, list[str], list[Path]]  # pictures, labels, class names, files

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IDX = ("MNIST", "FashionMNIST", "KMNIST")


def torchvision_dataset(name: str, *, root: str = "data", split: Split = "test", download: bool = False) -> ArrayDataset:
    """A set that torchvision knows, from a local root: torchvision-data:CIFAR10 (or CIFAR100, MNIST, FashionMNIST, KMNIST).

    `root` is the folder given to torchvision, or the one with the files themselves; CIFAR is read in its Python and in its
    binary version. Nothing is fetched unless `download: true` is given.
    """
    known = (*_IDX, "CIFAR10", "CIFAR100")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise UnknownName(f"no torchvision data set named {name!r}; {hint} Others: unpack them and use folder: or csv:")
    if split not in ("train", "test"):
        raise BadData(f"torchvision-data:{name}: split is train or test, got {split!r}")
    top = Path(root).expanduser()
    reader: Callable[[str, Path, str], Held | None] = _idx if name in _IDX else _cifar
    found = reader(name, top, split)
    if found is None and download:
        _download(name, top)
        found = reader(name, top, split)
    if found is None:
        raise BadData(
            f"torchvision-data:{name}: no {split} files of it in {top}; give root, the folder they are in, or download: true"
        )
    pictures, labels, classes, files = found
    return ArrayDataset(pictures, labels, classes=classes, name=name, files=files)


def _idx(name: str, root: Path, split: str) -> Held | None:
    prefix = "train" if split == "train" else "t10k"
    for folder in (root / name / "raw", root / name, root / "raw", root):
        files = [_either(folder, f"{prefix}-{what}-ubyte") for what in ("images-idx3", "labels-idx1")]
        if files[0] and files[1]:
            pictures, labels = published.read_idx(files[0]), published.read_idx(files[1])
            return published.GreyRows(pictures), whole(labels).astype("int64"), _idx_classes(name), [files[0], files[1]]
    return None


def _either(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _idx_classes(name: str) -> list[str]:
    from torchvision import datasets

    return [label.partition(" - ")[0] for label in getattr(datasets, name).classes]  # "0 - zero" is called 0


def _cifar(name: str, root: Path, split: str) -> Held | None:
    ten = name == "CIFAR10"
    trained = [f"data_batch_{number}" for number in range(1, 6)] if ten else ["train"]
    wanted = trained if split == "train" else ["test_batch" if ten else "test"]
    binary, python = ("cifar-10-batches-bin", "cifar-10-batches-py") if ten else ("cifar-100-binary", "cifar-100-python")
    for folder in (root / binary, root):
        files = [folder / f"{file}.bin" for file in wanted]
        if all(file.is_file() for file in files):
            pictures, labels = published.read_cifar_binary(files, labels=1 if ten else 2)
            return pictures, labels, _cifar_classes(ten, folder), files
    for folder in (root / python, root):
        files = [folder / file for file in wanted]
        if all(file.is_file() for file in files):
            pictures, labels = published.read_cifar_python(files, label="labels" if ten else "fine_labels")
            return pictures, labels, _cifar_classes(ten, folder), files
    return None


def _cifar_classes(ten: bool, folder: Path) -> list[str]:
    if ten:
        return list(CIFAR10)
    listed, meta = folder / "fine_label_names.txt", folder / "meta"
    if listed.is_file():
        return [line.strip() for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    if meta.is_file():
        names: Sequence[Any] = published.read_arrays(meta)["fine_label_names"]
        return [str(name) for name in names]
    raise BadData(f"{folder}: has neither fine_label_names.txt nor meta, which name the classes; unpack the whole archive")


def _download(name: str, root: Path) -> None:
    """Fetch the files as torchvision does, with its checksums, and without the unpickling that follows there."""
    from torchvision import datasets
    from torchvision.datasets.utils import download_and_extract_archive

    kind = getattr(datasets, name)
    try:
        if name in _IDX:
            kind(str(root), download=True)
        else:
            download_and_extract_archive(kind.url, str(root), filename=kind.filename, md5=kind.tgz_md5)
    except (OSError, RuntimeError) as error:
        raise BadData(
            f"torchvision-data:{name}: not to be downloaded ({one_line(error)}); fetch it elsewhere and put it into {root}"
        ) from None
