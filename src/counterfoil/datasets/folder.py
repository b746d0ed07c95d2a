"""Pictures in folders, one sub-folder a class."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from counterfoil import imagenet, images, labels
from counterfoil.errors import BadData, LabelMismatch
from counterfoil.parts import Sample


def folder(path: str, *, names: str | None = None) -> FolderDataset:
    """Pictures in folders, one sub-folder a class: folder:PATH.

    Classes are named after their folders; ImageNet's WordNet ids are put into words. `names` is a file with other names:
    JSON or CSV from folder to name, or a text with one name a line in the folders' sorted order.
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

    Hidden files, hidden folders and files that are no pictures by name are passed over, and so are folders without any.
    """

    def __init__(self, root: Path, *, names: Path | None = None) -> None:
        self.root = root
        self._folders, self._files = _list(root)
        self.classes: Sequence[str] = _named(self._folders, names)
        self.aliases: labels.Aliases = [(name,) for name in self._folders]
        self._length = sum(files.count("\0") + 1 for files in self._files)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sample]:
        for label, (name, files) in enumerate(zip(self._folders, self._files, strict=True)):
            for file in files.split("\0"):
                image_id = f"{name}/{file}"
                yield Sample(image_id, label, image_id)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return images.read(self.root / sample.image_id, size)

    def provenance(self) -> dict[str, str]:
        """A hash over the pictures' paths and sizes: it tells another set of files, not an edited picture of equal size."""
        total = hashlib.sha256()
        for sample in self:
            path = self.root / sample.image_id
            size = path.stat().st_size if path.exists() else "nothing"  # a link that leads nowhere
            total.update(f"{sample.image_id} {size}\n".encode())
        return {"files": str(len(self)), "listing": total.hexdigest()}


def _list(root: Path) -> tuple[list[str], list[str]]:
    """The class folders with pictures, and for each its pictures' paths in one string: a million fit in little memory."""
    if not root.is_dir():
        raise BadData(f"{root}: no such folder; give one with a sub-folder of pictures for each class")
    folders, files = [], []
    for name in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith((".", "__"))):
        found = sorted(_pictures(root / name))
        if found:
            folders.append(name)
            files.append("\0".join(found))
            _check_encoding(root, [name, *found])
    if not folders:
        loose = any(_is_picture(entry.name) for entry in os.scandir(root))
        hint = "put them in one sub-folder a class" if loose else "it needs a sub-folder of pictures for each class"
        raise BadData(f"{root}: no images in sub-folders; {hint}")
    if len(folders) == 1:
        raise BadData(f"{root}: only one class, {folders[0]!r}; a test of a classifier needs two or more sub-folders with images")
    return folders, files


def _pictures(top: Path) -> Iterator[str]:
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if not name.startswith(".")]
        relative = Path(folder).relative_to(top)
        yield from ((relative / name).as_posix() for name in files if _is_picture(name))


def _check_encoding(root: Path, names: list[str]) -> None:
    """Refuse names in another encoding than the system's: they cannot be written down."""
    try:
        "\0".join(names).encode()
    except UnicodeEncodeError as error:
        name = names[error.object.count("\0", 0, error.start)]
        raise BadData(f"{root}: the name {name!a} is not in UTF-8; rename it") from None


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
