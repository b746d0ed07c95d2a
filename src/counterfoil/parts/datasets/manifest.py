"""Pictures listed in a table: a CSV file with paths and labels."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from counterfoil.core.errors import BadData, one_line
from counterfoil.parts import labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.files import Files
from counterfoil.parts.weights import file_sha256

_PATHS = ("path", "file", "filename", "file_name", "image", "image_path")
_LABELS = ("label", "class", "target", "wnid", "category")
_IDS = ("id", "image_id")


def csv_dataset(
    path: str,
    *,
    root: str | None = None,
    classes: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    caption: str = "caption",
) -> ManifestDataset:
    """Pictures listed in a CSV or TSV file with the columns path, label and, if you like, id: csv:FILE.

    Columns go by their heading, or by `columns: [path, label, id]`; a file without headings has them in that order. Paths
    count from the file's own folder, or from `root`. Labels are names or WordNet ids, or numbers that count `classes`: a
    list, or a file with one name a line, by default classes.txt in the table's folder. A column headed `caption`, if there is
    one, is what `captions:` takes.
    """
    if not path:
        raise BadData("csv: name a file, as in csv:photos.csv")
    file = Path(path).expanduser()
    rows = _read(file)
    where, first = _columns(rows[0], columns, file)
    taken = [[row[at].strip() if at < len(row) else "" for at in where] for row in rows[first:]]
    data = ManifestDataset(taken, file, root=Path(root).expanduser() if root else file.parent, classes=classes, line=first + 1)
    names = [cell.strip().casefold() for cell in rows[0]]
    if first and caption.casefold() in names:
        at = names.index(caption.casefold())
        data.captions = [row[at].strip() if at < len(row) else "" for row in rows[first:]]
    return data


class ManifestDataset:
    """Pictures by path. Image ids are the paths as they are written, unless the table has ids of its own."""

    def __init__(
        self, rows: Sequence[Sequence[str]], file: Path, *, root: Path, classes: str | Sequence[str] | None = None, line: int = 1
    ) -> None:
        for number, row in enumerate(rows, start=line):
            if not row[0] or not row[1]:
                raise BadData(f"{file}, line {number}: no {'label' if row[0] else 'path'}; every picture has a path and a label")
        self._file, self._root = file, root
        self._paths = [row[0] for row in rows]
        self._ids = [row[2] if len(row) > 2 and row[2] else row[0] for row in rows]
        found = labels.resolve_labels((row[1] for row in rows), classes, what=str(file), folder=file.parent)
        self._labels = [found.numbers[row[1]] for row in rows]
        self.classes: Sequence[str] = found.classes
        self.aliases: labels.Aliases | None = found.aliases
        self.captions = [""] * len(self._ids)
        if len(set(self._ids)) < len(self._ids):
            ((twice, _),) = Counter(self._ids).most_common(1)
            raise BadData(f"{file}: {twice!r} is listed twice; list each picture once, or add a column id")

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Sample]:
        for image_id, label, path, text in zip(self._ids, self._labels, self._paths, self.captions, strict=True):
            yield Sample(image_id, label, path, text)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return self.reader().load(sample, size)

    def reader(self) -> Files:
        """For workers that are told what to read."""
        return Files(self._root)

    def provenance(self) -> dict[str, str]:
        """The hash of the table."""
        return {"files": str(len(self)), "manifest": file_sha256(self._file)}


def _read(file: Path) -> list[list[str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
            rows = [row for row in csv.reader(opened, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except OSError as error:
        raise BadData(f"{file}: cannot be read ({error.strerror}); give a CSV file with the columns path and label") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{file}: not a CSV file ({one_line(error)})") from None
    if not rows:
        raise BadData(f"{file}: is empty; list one picture a line, with the columns path and label")
    return rows


def _columns(head: Sequence[str], wanted: Sequence[str] | None, file: Path) -> tuple[list[int], int]:
    """Where path, label and perhaps id are, and the first row that is a picture."""
    names = [cell.strip().casefold() for cell in head]
    if wanted is not None:
        missing = [name for name in wanted if name.casefold() not in names]
        if missing or len(wanted) not in (2, 3):
            raise BadData(f"{file}: columns are [path, label] or [path, label, id] among {', '.join(names)}, got {list(wanted)}")
        return [names.index(name.casefold()) for name in wanted], 1
    found = [next((names.index(name) for name in known if name in names), None) for known in (_PATHS, _LABELS, _IDS)]
    if found[0] is not None and found[1] is not None:
        return [at for at in found if at is not None], 1
    if found[0] is None and found[1] is None and len(head) in (2, 3):
        return list(range(len(head))), 0  # no headings
    raise BadData(f"{file}: its columns are {', '.join(names)}; call them path and label, or give columns: [path, label]")
