"""Data sets of the Hugging Face library `datasets`, from a folder or from the hub."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from counterfoil.core import errors
from counterfoil.core.errors import BadData, BadImage, CounterfoilError, one_line
from counterfoil.core.tables import read_bytes
from counterfoil.parts import images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import ImageSet, index
from counterfoil.parts.weights import local_folder


class TableReader:
    """Reads images from the rows of a table of the library. Files that a row names have to lie below one of `roots`."""

    def __init__(self, table: Any, column: str, roots: Sequence[Path]) -> None:
        self._table, self._column, self._roots = table, column, tuple(roots)
        self._lock = threading.Lock()  # images are read by several threads, the table is not made for it

    def load(self, sample: Sample, size: int | None) -> Tensor:
        with self._lock:
            cell = self._table[int(sample.image_id)][self._column]
        return images.read(_image_in(cell, self._roots, sample.source), size, name=sample.source)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())


@dataclass(frozen=True)
class HfDataOptions:
    split: str | None = None
    config: str | None = None
    image: str | None = None
    label: str | None = None
    caption: str | None = None
    classes: str | Sequence[str] | None = None
    streaming: bool = False
    count: int | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.streaming and not self.count:
            raise BadData("hfdata: streaming needs count, the number of images to take")
        if self.count is not None and self.count < 1:
            raise BadData(f"hfdata: count is at least 1, got {self.count}")


def hf_dataset(name: str, options: HfDataOptions) -> ImageSet:
    """A data set of the Hugging Face library: hfdata:FOLDER, or hfdata:ORGANISATION/NAME from the hub, with `split`.

    A folder is what save_to_disk writes, or Parquet files or images in the hub's layout. `image` and `label` name the
    columns where they are not found by their type; class names come with the label column or from `classes`, a list or a
    file. `caption` names a column of captions, the first of several in a cell. `count` takes the first images only; with
    `streaming`, which needs it, only these are fetched, once, into the library's cache.
    """
    what = f"hfdata:{name}"
    library = errors.require("datasets", what=what)
    if not name:
        raise BadData("hfdata: name a folder or a data set of the hub, as in hfdata:cifar10")
    with _loading(name, library):
        found = _open(library, name, options)
    columns = _columns(found, options.image, options.label, library, what)
    caption, count = options.caption, options.count
    if caption is not None and caption not in (found.features or {}):
        raise BadData(f"{what}: no column {caption!r} for caption; its columns are {', '.join(found.features or {})}")
    found = found.cast_column(columns[0], library.Image(decode=False))
    origin = {"library": f"datasets {library.__version__}", "source": name, "split": str(found.split or options.split or "")}
    with _loading(name, library):
        if options.streaming:
            key = [name, options.config, options.split, options.revision, count]
            found = _fetch(library, found, count or 1, _roots(library, name), key=key)
        elif count:
            found = found.select(range(min(count, len(found))))
        written = _column(found, columns[1])
        captions = [_text(cell) for cell in _column(found, caption)] if caption else []
    numbers, names, aliases = _label_rows(written, found.features[columns[1]], options.classes, what)
    listed = index([f"{row:08d}" for row in range(len(written))], numbers, what=what, caption=captions)
    mark = {"fingerprint": str(found._fingerprint)} if getattr(found, "_fingerprint", None) else {}
    about = {**origin, **mark, "rows": str(len(written))}
    reader = TableReader(found, columns[0], _roots(library, name))
    return ImageSet(listed, names, reader, about=lambda: about, aliases=aliases, source=f"{what}[{{id}}]")


def _open(library: Any, name: str, options: HfDataOptions) -> Any:
    folder = local_folder(name)
    if folder and any((folder / file).is_file() for file in ("state.json", "dataset_dict.json")):
        found = library.load_from_disk(str(folder))
    else:
        chosen = {"split": options.split, "streaming": options.streaming, "revision": options.revision}
        found = library.load_dataset(str(folder) if folder else name, options.config, **chosen)
    if isinstance(found, library.DatasetDict | library.IterableDatasetDict):
        split = options.split
        if split not in found and not (split is None and len(found) == 1):
            given = f"no split {split!r}" if split else "several splits"
            raise BadData(f"hfdata:{name}: {given}; give split, one of {', '.join(map(str, found))}")
        found = found[split] if split else next(iter(found.values()))
    return found.to_iterable_dataset() if options.streaming and isinstance(found, library.Dataset) else found


def _fetch(library: Any, stream: Any, count: int, roots: Sequence[Path], *, key: Sequence[object]) -> Any:
    """The first rows of a stream as a stored table, fetched once: every process, and every later run, reads the same file."""
    from datasets.arrow_writer import ArrowWriter

    local = local_folder(str(key[0]))  # which may change, unlike a revision on the hub
    stamps = [(str(file), file.stat().st_mtime_ns) for file in sorted(local.rglob("*"))] if local else []
    mark = hashlib.sha256(repr([*key, stream.features, stamps]).encode()).hexdigest()[:32]
    folder = Path(library.config.HF_DATASETS_CACHE) / "counterfoil"
    file = folder / f"{mark}.arrow"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as held:
            partial = Path(held) / "rows.arrow"
            with ArrowWriter(path=str(partial), features=stream.features) as writer:
                for row in stream.take(count):
                    writer.write({name: _embedded(cell, roots) for name, cell in row.items()})
                writer.finalize()
            partial.replace(file)
    table = library.Dataset.from_file(str(file))
    table._fingerprint = mark
    return table


def _embedded(cell: Any, roots: Sequence[Path]) -> Any:
    """A cell with the bytes of its image instead of the name of a file."""
    if not isinstance(cell, dict) or set(cell) != {"bytes", "path"}:
        return cell
    try:
        found = _image_in(cell, roots, "a row of the stream")
        return {"bytes": found if isinstance(found, bytes) else read_bytes(found), "path": None}
    except (BadImage, OSError):  # named when it is loaded
        return cell


def _image_in(cell: Any, roots: Sequence[Path], name: str) -> bytes | Path:
    """The image in a cell that was left undecoded: its bytes, or the file they are in."""
    if isinstance(cell, dict) and cell.get("bytes"):
        return bytes(cell["bytes"])
    path = Path(cell["path"]) if isinstance(cell, dict) and cell.get("path") else None
    if path is None:
        raise BadImage(f"{name}: holds no image")
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise BadImage(f"{name}: names the file {str(path)!r}, which is no part of the data set")
    return path


def _label_rows(
    written: Sequence[Any], feature: Any, classes: str | Sequence[str] | None, what: str
) -> tuple[list[int], Sequence[str], labels.Aliases | None]:
    """The label of each row, the class names, and their aliases."""
    known = getattr(feature, "names", None)
    if not known or classes is not None:
        texts = ["" if value is None else str(value) for value in written]
        found = labels.resolve_labels(texts, classes, what=what)
        return [found.numbers[text] for text in texts], found.classes, found.aliases
    labels.check_classes(known, what)
    for row, value in enumerate(written):
        if not isinstance(value, int) or not 0 <= value < len(known):  # -1 is how test sets without labels are published
            raise BadData(f"{what}: row {row} has the label {value!r}, its classes count from 0 to {len(known) - 1}")
    return list(written), list(known), None


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


def _column(table: Any, name: str) -> list[Any]:
    return list(table.select_columns([name]).with_format("arrow")[:].column(0).to_pylist())


def _text(cell: Any) -> str:
    """The caption in a cell, the first where there are several."""
    first = cell[0] if isinstance(cell, list) and cell else cell
    return first.strip() if isinstance(first, str) else ""


def _roots(library: Any, name: str) -> list[Path]:
    """The folders in which files that a data set names may lie: its own, or the library's caches."""
    from huggingface_hub import constants

    folder = local_folder(name)
    caches = [library.config.HF_DATASETS_CACHE, library.config.DOWNLOADED_DATASETS_PATH, constants.HF_HUB_CACHE]
    return [Path(root).expanduser().resolve() for root in ([folder] if folder else caches)]


@contextlib.contextmanager
def _loading(name: str, library: Any) -> Iterator[None]:
    """Turn the library's errors into one line, and keep its progress bars quiet."""
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
