"""Images in class folders, or listed in a CSV file."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from torch import Tensor

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.core.tables import read_rows
from counterfoil.parts import imagenet, images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import ImageSet, index
from counterfoil.parts.weights import file_sha256

_PATHS = ("path", "file", "filename", "file_name", "image", "image_path")
_LABELS = ("label", "class", "target", "wnid", "category")
_IDS = ("id", "image_id")
_CSV = "list one image per line, with the columns path and label"


@dataclass(frozen=True)
class Files:
    """Reads images whose sources are paths below a folder."""

    root: Path

    def load(self, sample: Sample, size: int | None) -> Tensor:
        return images.read(self.root / sample.source, size)


@dataclass(frozen=True)
class FolderOptions:
    names: str | None = None


def folder(path: str, options: FolderOptions) -> ImageSet:
    """Images in folders, one sub-folder per class: folder:PATH.

    Classes are named after their folders; ImageNet's WordNet ids are put into words. `names` is a file with other names:
    a JSON mapping from folder to name, lines "folder name", or a table with the folders and a column `name`. Hidden files
    and folders, files that are no images by name, and folders without any are left out.
    """
    if not path:
        raise BadData("folder: name a folder, as in folder:photos")
    root = Path(path).expanduser()
    if not root.is_dir():
        what = "not a folder" if root.exists() else "no such folder"
        raise BadData(f"{root}: {what}; give one with a sub-folder of images for each class")
    entries = _entries(root)
    named = sorted(entry.name for entry in entries if _is_folder(entry) and not entry.name.startswith((".", "__")))
    held = {name: sorted(image_files(root / name)) for name in named}
    folders = {name: files for name, files in held.items() if files}
    if not folders:
        loose = any(_is_image(entry.name) for entry in entries)
        hint = "put them in one sub-folder per class" if loose else "it needs a sub-folder of images for each class"
        raise BadData(f"{root}: no images in sub-folders; {hint}")
    if len(folders) == 1:
        (only,) = folders
        raise BadData(f"{root}: only one class, {only!r}; a test of a classifier needs two or more sub-folders with images")
    ids = [f"{name}/{file}" for name, files in folders.items() for file in files]
    numbers = [number for number, files in enumerate(folders.values()) for _ in files]
    listed = index(ids, numbers, what=str(root))
    classes = _names(list(folders), Path(options.names).expanduser() if options.names else None)
    return ImageSet(listed, classes, Files(root), about=partial(_sizes, root, listed), aliases=[(name,) for name in folders])


@dataclass(frozen=True)
class CsvOptions:
    root: str | None = None
    classes: str | Sequence[str] | None = None
    columns: Sequence[str] | None = None
    caption: str = "caption"


def csv_dataset(path: str, options: CsvOptions) -> ImageSet:
    """Images listed in a CSV or TSV file with the columns path, label and, if you like, id: csv:FILE.

    Columns go by their heading, or by `columns: [path, label, id]`; a file without headings has them in that order. Paths
    count from the file's own folder, or from `root`. Labels are names or WordNet ids, or numbers that count `classes`: a
    list, or a file with one name per line, by default classes.txt in the table's folder. A column headed `caption`, if
    there is one, is what `captions:` takes.
    """
    if not path:
        raise BadData("csv: name a file, as in csv:photos.csv")
    file = Path(path).expanduser()
    lines = read_rows(file, what="image paths and labels")
    first, head = next(lines, (0, []))
    if not head:
        raise BadData(f"{file}: is empty; {_CSV}")
    where, headed = _columns(head, options.columns, file)
    headings = [cell.casefold() for cell in head]
    told = headings.index(options.caption.casefold()) if headed and options.caption.casefold() in headings else None
    paths, written, ids, captions = [], [], [], []
    for line, row in [*([] if headed else [(first, head)]), *lines]:
        cells = [row[at] if at < len(row) else "" for at in where]
        if not cells[0] or not cells[1]:
            raise BadData(f"{file}, line {line}: no {'label' if cells[0] else 'path'}; every image has a path and a label")
        paths.append(cells[0])
        written.append(cells[1])
        ids.append((cells[2] if len(cells) > 2 else "") or cells[0])
        captions.append(row[told] if told is not None and told < len(row) else "")
    found = labels.resolve_labels(written, options.classes, what=str(file), folder=file.parent)
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise BadData(f"{file}: {twice!r} is listed twice; list each image once, or add a column id")
    listed = index(ids, [found.numbers[label] for label in written], what=str(file), source=paths, caption=captions)
    reader = Files(Path(options.root).expanduser() if options.root else file.parent)
    return ImageSet(
        listed,
        found.classes,
        reader,
        about=lambda: {"files": str(len(ids)), "manifest": file_sha256(file)},
        aliases=found.aliases,
    )


def image_files(top: Path) -> Iterator[str]:
    """The paths of the images below a folder, in no order. Links to folders are not followed."""
    below = [""]
    while below:
        prefix = below.pop()
        for entry in _entries(top / prefix):
            if _is_folder(entry):
                if not entry.name.startswith(".") and not entry.is_symlink():
                    below.append(f"{prefix}{entry.name}/")
            elif _is_image(entry.name) and (entry.is_symlink() or entry.is_file()):  # a FIFO would be waited for
                yield prefix + entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:  # passed over, its images would be missing without a word
        raise BadData(f"{folder}: cannot be listed ({error.strerror}); correct its rights, or take it away") from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in images.EXTENSIONS


def _sizes(root: Path, listed: pa.Table) -> Mapping[str, str]:
    """A hash over the images' paths and sizes: it tells another set of files, not an edited image of equal size."""
    total = hashlib.sha256()
    for image_id in map(str, listed["image_id"]):
        try:
            size: int | str = os.stat(f"{root}{os.sep}{image_id}").st_size
        except OSError:  # a link to nowhere
            size = "nothing"
        total.update(f"{image_id} {size}\n".encode())
    return {"files": str(len(listed)), "listing": total.hexdigest()}


def _names(folders: list[str], path: Path | None) -> list[str]:
    """The class names of folders, from a file if there is one."""
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


def _columns(head: Sequence[str], wanted: Sequence[str] | None, file: Path) -> tuple[list[int], bool]:
    """The positions of path, label and perhaps id, and whether the first row has headings."""
    names = [cell.casefold() for cell in head]
    if wanted is not None:
        missing = [name for name in wanted if name.casefold() not in names]
        if missing or len(wanted) not in (2, 3):
            raise BadData(f"{file}: columns are [path, label] or [path, label, id] among {', '.join(names)}, got {list(wanted)}")
        return [names.index(name.casefold()) for name in wanted], True
    found = [next((names.index(name) for name in known if name in names), None) for known in (_PATHS, _LABELS, _IDS)]
    if found[0] is not None and found[1] is not None:
        return [at for at in found if at is not None], True
    if found[0] is None and found[1] is None and len(head) in (2, 3):
        return list(range(len(head))), False
    raise BadData(f"{file}: its columns are {', '.join(names)}; call them path and label, or give columns: [path, label]")
