"""Data sets of the Hugging Face library `datasets`, from a folder or from the hub."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from counterfoil.core import extras
from counterfoil.core.errors import BadData, CounterfoilError, one_line
from counterfoil.parts import images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.weights import local_folder


def hf_dataset(
    name: str,
    *,
    split: str | None = None,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    caption: str | None = None,
    classes: str | Sequence[str] | None = None,
    streaming: bool = False,
    count: int | None = None,
    revision: str | None = None,
) -> ColumnDataset:
    """A data set of the Hugging Face library: hfdata:FOLDER, or hfdata:ORGANISATION/NAME from the hub, with `split`.

    A folder is what save_to_disk writes, or Parquet files or pictures in the hub's layout. `image` and `label` name the
    columns where they are not found by their type; class names come with the label column or from `classes`, a list or a
    file. `caption` names a column of captions, the first of several in a cell. `count` takes the first pictures only; with
    `streaming`, which needs it, the rest is never fetched.
    """
    library = extras.require("datasets", extra="data", what=f"hfdata:{name}")
    if not name:
        raise BadData("hfdata: name a folder or a data set of the hub, as in hfdata:cifar10")
    if streaming and not count:
        raise BadData(f"hfdata:{name}: streaming needs count, the number of pictures to take")
    with _loading(name, library):
        found = _opened(library, name, config=config, split=split, streaming=streaming, revision=revision)
    if count and not streaming:
        found = found.select(range(min(count, len(found))))
    columns = _columns(found, image, label, library, f"hfdata:{name}")
    if caption is not None and caption not in (found.features or {}):
        raise BadData(f"hfdata:{name}: no column {caption!r} for caption; its columns are {', '.join(found.features or {})}")
    found = found.cast_column(columns[0], library.Image(decode=False))
    with _loading(name, library):
        rows: _Rows = _Streamed(found, columns, caption, count or 0) if streaming else _Stored(found, columns, caption)
    origin = {"library": f"datasets {library.__version__}", "source": name, "split": str(found.split or split or "")}
    mark = getattr(found, "_fingerprint", None)
    origin |= {"fingerprint": str(mark)} if mark else {}
    return ColumnDataset(rows, found.features[columns[1]], classes=classes, name=f"hfdata:{name}", origin=origin)


class ColumnDataset:
    """Rows with a picture and a label. Image ids are the row numbers."""

    def __init__(
        self, rows: _Rows, feature: Any, *, classes: str | Sequence[str] | None, name: str, origin: dict[str, str]
    ) -> None:
        self._rows = rows
        self._origin = origin
        self._name = name
        known = getattr(feature, "names", None)
        if known and classes is None:
            labels.check_classes(known, name)
            self.classes: Sequence[str] = list(known)
            self.aliases: labels.Aliases | None = None
            self._labels = array("l", (self._number(value, len(known), at) for at, value in enumerate(rows.labels)))
        else:
            written = ["" if value is None else str(value) for value in rows.labels]
            found = labels.resolve_labels(written, classes, what=name)
            self.classes, self.aliases = found.classes, found.aliases
            self._labels = array("l", (found.numbers[value] for value in written))

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[Sample]:
        for at, label in enumerate(self._labels):
            yield Sample(f"{at:08d}", label, f"{self._name}[{at}]", self._rows.captions[at] if self._rows.captions else "")

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return images.read(self._rows.picture(int(sample.image_id)), size, name=sample.source)

    def provenance(self) -> dict[str, str]:
        """Library, source and the library's own fingerprint of the data."""
        return {**self._origin, "rows": str(len(self))}

    def _number(self, value: Any, classes: int, row: int) -> int:
        if not isinstance(value, int) or not 0 <= value < classes:  # -1 is how test sets without labels are published
            raise BadData(f"{self._name}: row {row} has the label {value!r}, its classes count from 0 to {classes - 1}")
        return value


class _Rows:
    """Labels at hand, pictures on demand."""

    labels: Sequence[Any]
    captions: Sequence[str] = ()

    def picture(self, at: int) -> bytes | Path:
        """A picture's file, or its content."""
        raise NotImplementedError


class _Stored(_Rows):
    """Rows of a table on disk."""

    def __init__(self, table: Any, columns: tuple[str, str], caption: str | None) -> None:
        self._table = table
        self._image = columns[0]
        self.labels = self._column(columns[1])
        self.captions = [_text(cell) for cell in self._column(caption)] if caption else []
        self._lock = threading.Lock()  # pictures are read by several threads, the table's reader is not made for it

    def picture(self, at: int) -> bytes | Path:
        with self._lock:
            return _encoded(self._table[at][self._image])

    def _column(self, name: str) -> list[Any]:
        return list(self._table.select_columns([name]).with_format("arrow")[:].column(0).to_pylist())


class _Streamed(_Rows):
    """The first rows of a stream, their pictures kept in a temporary file."""

    def __init__(self, stream: Any, columns: tuple[str, str], caption: str | None, count: int) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it goes when the rows do
        self._ends = array("q", [0])
        self.labels, self.captions = [], []
        for row in stream.take(count):
            found = _encoded(row[columns[0]])
            self._file.write(found.read_bytes() if isinstance(found, Path) else found)
            self._ends.append(self._file.tell())
            self.labels.append(row[columns[1]])
            self.captions.append(_text(row[caption]) if caption else "")
        self._file.flush()

    def picture(self, at: int) -> bytes:
        begin, end = self._ends[at], self._ends[at + 1]
        return os.pread(self._file.fileno(), end - begin, begin)


def _text(cell: Any) -> str:
    """The caption in a cell, the first where there are several."""
    first = cell[0] if isinstance(cell, list) and cell else cell
    return first.strip() if isinstance(first, str) else ""


def _encoded(cell: Any) -> bytes | Path:
    """The picture in a cell that was left undecoded: its bytes, or the file they are in."""
    if isinstance(cell, dict) and cell.get("bytes"):
        return bytes(cell["bytes"])
    if isinstance(cell, dict) and cell.get("path"):
        return Path(cell["path"])
    return b""  # which no reader takes for a picture


def _opened(library: Any, name: str, *, config: str | None, split: str | None, streaming: bool, revision: str | None) -> Any:
    folder = local_folder(name)
    if folder and any((folder / file).is_file() for file in ("state.json", "dataset_dict.json")):
        found = library.load_from_disk(str(folder))
        found = found.to_iterable_dataset() if streaming and isinstance(found, library.Dataset) else found
    else:
        found = library.load_dataset(str(folder) if folder else name, config, split=split, streaming=streaming, revision=revision)
    if isinstance(found, library.DatasetDict | library.IterableDatasetDict):
        if split not in found and not (split is None and len(found) == 1):
            given = f"no split {split!r}" if split else "several splits"
            raise BadData(f"hfdata:{name}: {given}; give split, one of {', '.join(map(str, found))}")
        found = found[split] if split else next(iter(found.values()))
        found = found.to_iterable_dataset() if streaming and isinstance(found, library.Dataset) else found
    return found


def _columns(found: Any, image: str | None, label: str | None, library: Any, what: str) -> tuple[str, str]:
    features = found.features or {}
    pictures = [name for name, kind in features.items() if isinstance(kind, library.Image)]
    classes = [name for name, kind in features.items() if isinstance(kind, library.ClassLabel)]
    named = [name for name in ("label", "labels", "class", "cls", "target") if name in features]
    chosen = []
    for role, given, known in (("image", image, pictures), ("label", label, classes or named[:1])):
        held = ", ".join(features) or "none"
        if given is not None and given not in features:
            raise BadData(f"{what}: no column {given!r} for {role}; its columns are {held}")
        if given is None and len(known) != 1:
            raise BadData(f"{what}: {len(known) or 'no'} columns may be the {role}; give {role}: one of {held}")
        chosen.append(given or known[0])
    return chosen[0], chosen[1]


@contextlib.contextmanager
def _loading(name: str, library: Any) -> Iterator[None]:
    """Turn what the library says into one line, and keep its progress bars quiet."""
    bars = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    except CounterfoilError:
        raise
    except Exception as error:  # its errors have no common base
        text = one_line(error)
        if local_folder(name) is not None:
            raise BadData(f"hfdata:{name}: the folder cannot be read as a data set ({text})") from None
        raise BadData(
            f"hfdata:{name}: not in the cache ({library.config.HF_DATASETS_CACHE}) and not to be had from the hub ({text}); "
            f"where there is a network run 'hf download --repo-type dataset {name} --local-dir DIR', and give hfdata:DIR here"
        ) from None
    finally:
        if bars:
            library.enable_progress_bar()
