"""Data sets: the same dozen images in every layout that is read."""

from __future__ import annotations

import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.fakes import CLASSES
from tests.worlds import arrays
from tests.worlds import folder as photos

NAMES = list(CLASSES)


def _csv(folder: Path, stack: ExitStack) -> Any:
    rows = [f"{file.relative_to(folder)},{file.parent.name}" for file in sorted(photos(folder).rglob("*.png"))]
    (folder / "list.csv").write_text("path,label\n" + "\n".join(rows))
    return f"csv:{folder / 'list.csv'}", {}


def _webdataset(folder: Path, stack: ExitStack) -> Any:
    with tarfile.open(folder / "x-0.tar", "w") as archive:
        for number, file in enumerate(sorted(photos(folder / "photos").rglob("*.png"))):
            (folder / "label").write_text(file.parent.name)
            archive.add(file, f"{number}.png")
            archive.add(folder / "label", f"{number}.cls")
    return f"webdataset:{folder / 'x-{0..0}.tar'}", {}


def _hfdata(folder: Path, stack: ExitStack) -> Any:
    import datasets

    files = sorted(photos(folder / "photos").rglob("*.png"))
    columns = {"image": [str(file) for file in files], "label": [NAMES.index(file.parent.name) for file in files]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder / "saved")
    return f"hfdata:{folder / 'saved'}", {}


def _mnist(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.datasets.made import idx

    for prefix in ("t10k", "train"):
        idx(folder / "MNIST" / "raw", prefix)
    return "torchvision-data:MNIST", {"root": str(folder)}


RECIPES: dict[tuple[str, str], Any] = {
    ("dataset", "folder"): lambda folder, stack: (f"folder:{photos(folder)}", {}),
    ("dataset", "tensors"): lambda folder, stack: (f"tensors:{arrays(folder / 'a.npz', 12)}", {}),
    ("dataset", "csv"): _csv,
    ("dataset", "webdataset"): _webdataset,
    ("dataset", "hfdata"): _hfdata,
    ("dataset", "torchvision-data"): _mnist,
    ("dataset", "subset"): lambda folder, stack: (f"subset:folder:{photos(folder)}", {"per_class": 2, "seed": 1}),
    ("dataset", "lab"): lambda folder, stack: ("lab:wardrobe", {"count": 12}),
}
