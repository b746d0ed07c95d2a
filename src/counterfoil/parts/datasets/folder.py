"""Pictures in folders, one sub-folder a class."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from torch import Tensor

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.parts import imagenet, images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.files import Files


def folder(path: str, *, names: str | None = None) -> FolderDataset:
    """Pictures in folders, one sub-folder a class: folder:PATH.

    Classes are named after their folders; ImageNet's WordNet ids are put into words. `names` is a file with other names:
    a JSON mapping from folder to name, lines "folder name", or a table with the folders and a column `name`.
    """
    if not path:
        raise BadData("folder: name a folder, as in folder:photos")
    root = Path(path).expanduser()
    try:
        return FolderDataset(root, names=Path(names).expanduser() if names else None)
    except OSError as error:
        raise BadData(f"{root}: cannot be listed ({error.strerror}: {error.filename})") from None


class FolderDataset:
    """A folder of class folders. Image ids are paths below it; samples come class by class, each class sorted by path.

    Hidden files, hidden folders and files that are no pictures by name are passed over, and so are folders without any. The
    pictures are listed when they are first asked for: who only loads some need not wait for a list of millions.
    """

    def __init__(self, root: Path, *, names: Path | None = None) -> None:
        self.root = root
        self._folders = _folders(root)
        self.classes: Sequence[str] = _named(self._folders, names)
        self.aliases: labels.Aliases = [(name,) for name in self._folders]

    @cached_property
    def _files(self) -> list[str]:
        """For each folder its pictures' paths, sorted, in one string: a million fit in little memory."""
        return ["\0".join(_checked(self.root, sorted(_pictures(self.root / name)))) for name in self._folders]

    @cached_property
    def _length(self) -> int:
        return sum(files.count("\0") + 1 for files in self._files if files)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sample]:
        for label, (name, files) in enumerate(zip(self._folders, self._files, strict=True)):
            for file in files.split("\0") if files else ():
                image_id = f"{name}/{file}"
                yield Sample(image_id, label, image_id)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return self.reader().load(sample, size)

    def reader(self) -> Files:
        """For workers that are told what to read."""
        return Files(self.root)

    def provenance(self) -> dict[str, str]:
        """A hash over the pictures' paths and sizes: it tells another set of files, not an edited picture of equal size."""
        total, root = hashlib.sha256(), f"{self.root}{os.sep}"
        for sample in self:
            total.update(f"{sample.image_id} {_size(root + sample.image_id)}\n".encode())
        return {"files": str(len(self)), "listing": total.hexdigest()}


def _folders(root: Path) -> list[str]:
    """The class folders: those with pictures."""
    if not root.is_dir():
        what = "not a folder" if root.exists() else "no such folder"
        raise BadData(f"{root}: {what}; give one with a sub-folder of pictures for each class")
    named = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith((".", "__")))
    folders = _checked(root, [name for name in named if next(_pictures(root / name), None) is not None])
    if not folders:
        loose = any(_is_picture(entry.name) for entry in os.scandir(root))
        hint = "put them in one sub-folder a class" if loose else "it needs a sub-folder of pictures for each class"
        raise BadData(f"{root}: no images in sub-folders; {hint}")
    if len(folders) == 1:
        raise BadData(f"{root}: only one class, {folders[0]!r}; a test of a classifier needs two or more sub-folders with images")
    return folders


def _pictures(folder: Path | str, below: str = "") -> Iterator[str]:
    """The paths of the pictures below a folder, in no order. A folder that cannot be listed has none."""
    deeper = []
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir():
                if not name.startswith(".") and not entry.is_symlink():
                    deeper.append(name)
            elif _is_picture(name):
                yield below + name
    for name in deeper:
        yield from _pictures(f"{folder}{os.sep}{name}", f"{below}{name}/")


def _size(path: str) -> int | str:
    try:
        return os.stat(path).st_size
    except OSError:  # a link that leads nowhere
        return "nothing"


def _checked(root: Path, names: list[str]) -> list[str]:
    """The names, unless one is in another encoding than the system's: it cannot be written down."""
    try:
        "\0".join(names).encode()
    except UnicodeEncodeError as error:
        name = names[error.object.count("\0", 0, error.start)]
        raise BadData(f"{root}: the name {name!a} is not in UTF-8; rename it") from None
    return names


def _is_picture(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in images.EXTENSIONS


def _named(folders: list[str], path: Path | None) -> list[str]:
    if path is None:
        return imagenet.in_words(folders)
    given = labels.read_mapping(path, folders)
    missing = [name for name in folders if not given.get(name)]
    if missing:
        raise LabelMismatch(f"{path}: no name for the folders {', '.join(map(repr, missing[:3]))}; {len(missing)} are missing")
    named = [given[name] for name in folders]
    twice, times = Counter(named).most_common(1)[0]
    if times > 1:
        same = [repr(name) for name in folders if given[name] == twice]
        raise LabelMismatch(f"{path}: folders {' and '.join(same[:3])} are both named {twice!r}; give each class its own name")
    return named
