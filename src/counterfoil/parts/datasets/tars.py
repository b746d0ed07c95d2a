"""Images in WebDataset tar files, indexed once and then read anywhere, without unpacking or unpickling."""

from __future__ import annotations

import glob
import hashlib
import itertools
import math
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage
from counterfoil.core.tables import BadJson, open_regular, parse_json
from counterfoil.parts import images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import ImageSet, index

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MAX_SHARDS = 100_000
_MAX_LABEL = 2**20  # bytes of a label's file
_IMAGES = frozenset(ending.removeprefix(".") for ending in images.EXTENSIONS)
_LABELS = ("cls", "label", "cls.txt", "label.txt", "class")

Place = tuple[int, int]  # offset and size of a member's bytes in its shard


@dataclass(frozen=True)
class Shards:
    """Reads images by their place, "shard:offset:size"."""

    paths: tuple[Path, ...]

    def load(self, sample: Sample, size: int | None) -> Tensor:
        shard, offset, length = map(int, sample.place.split(":"))
        return images.read(_content(self.paths[shard], (offset, length)), size, name=sample.source)


@dataclass(frozen=True)
class TarOptions:
    image: str | None = None
    label: str | None = None
    classes: str | Sequence[str] | None = None


def webdataset(pattern: str, options: TarOptions) -> ImageSet:
    """Images in WebDataset tar files: webdataset:photos-{000..012}.tar.

    A sample is the files of one name; `image` is the ending of its image, if it has several, and `label` that of its
    label (cls by default), or `json.FIELD` for a field of its JSON file. Labels are names, or numbers that count
    `classes`: a list, or a file with one name per line, by default classes.txt next to the first shard. Shards are plain
    tar files, not compressed; nothing is unpickled.
    """
    if not pattern:
        raise BadData("webdataset: name tar files, as in webdataset:photos-{000..012}.tar")
    paths = _expand(pattern)
    ids, places, written = [], [], []
    for number, path in enumerate(paths):
        for name, files in _samples(path):
            ids.append(f"{path.stem}/{name}")
            places.append(":".join(map(str, (number, *_image(files, options.image, path, name)))))
            written.append(_label(files, options.label, path, name))
    what = str(paths[0])
    found = labels.resolve_labels(written, options.classes, what=what, folder=paths[0].parent)
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise BadData(f"{what}: the sample {twice!r} occurs twice; give shards and samples names of their own")
    numbers = [found.numbers[value] for value in written]
    listed = index(ids, numbers, what=what, place=places)
    about = partial(_listing, paths, listed)
    return ImageSet(listed, found.classes, Shards(tuple(paths)), about=about, aliases=found.aliases)


def _expand(pattern: str) -> list[Path]:
    """The files of a pattern: `{000..009}` counts, `{a,b}` lists, `*` and `?` are looked up on the disk."""
    parts = _BRACES.split(pattern)  # text, inside of braces, text, …
    if math.prod(_count(part) for part in parts[1::2]) > _MAX_SHARDS:
        raise BadData(f"webdataset: {pattern} names more than {_MAX_SHARDS:,} shards; correct the numbers in braces")
    choices = [_choices(part) if at % 2 else [part] for at, part in enumerate(parts)]
    found: list[Path] = []
    for name in map("".join, itertools.product(*choices)):
        path = Path(name).expanduser()
        listed = sorted(glob.glob(str(path))) if any(mark in name for mark in "*?[") and not path.exists() else [str(path)]
        found.extend(Path(entry) for entry in listed)
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        raise BadData(f"webdataset: no such file: {missing[0] if missing else pattern}; write it as in photos-{{000..012}}.tar")
    return found


def _count(inside: str) -> int:
    span = _RANGE.fullmatch(inside)
    return max(0, int(span[2]) - int(span[1]) + 1) if span else inside.count(",") + 1


def _choices(inside: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if not span:
        return inside.split(",")
    width = len(span[1]) if span[1].startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(span[1]), int(span[2]) + 1)]


def _samples(path: Path) -> Iterator[tuple[str, dict[str, Place]]]:
    """The samples of a shard: their common name, and the places of their files by ending."""
    current, files = "", dict[str, Place]()
    try:
        with open_regular(path) as file, tarfile.open(path, "r:", fileobj=file) as archive:
            for entry in archive:
                archive.members = []  # type: ignore[attr-defined]  # or it would keep every entry it has read
                place = PurePosixPath(entry.name)
                if not entry.isreg() or place.name.startswith("."):
                    continue
                stem, _, ending = place.name.partition(".")
                name = str(place.parent / stem)
                if name != current:
                    if files:
                        yield current, files
                    current, files = name, {}
                if ending.lower() in files:
                    raise BadData(f"{path}: sample {name!r} has two files .{ending}; the shard is damaged or not a WebDataset")
                files[ending.lower()] = (entry.offset_data, entry.size)
            _check_end(path, archive.offset)
    except tarfile.ReadError as error:
        hint = "unpack it with gunzip first" if path.suffix in (".gz", ".tgz") else "copy it again"
        raise BadData(f"{path}: cannot be read as a tar file ({error}); {hint}") from None
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
    if files:
        yield current, files


def _check_end(path: Path, offset: int) -> None:
    """Raise ReadError unless the archive ends with its two blocks of zeros.

    The library takes a damaged header for the end, so that the samples behind it would be missing without a word.
    """
    with path.open("rb") as file:
        file.seek(offset)
        length = 0
        while chunk := file.read(2**20):
            if chunk.strip(b"\0"):
                raise tarfile.ReadError(f"damaged at byte {offset}: no header of a file, and not the end")
            length += len(chunk)
    if length < 2 * tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"cut off at byte {offset}: the blocks that mark the end are missing")


def _content(path: Path, place: Place) -> bytes:
    """The bytes of a file inside a shard."""
    offset, size = place
    with path.open("rb") as file:
        file.seek(offset)
        found = file.read(size)
    if len(found) != size:
        raise BadImage(f"{path}: ends within a file; the shard was cut short, copy it again")
    return found


def _image(files: Mapping[str, Place], wanted: str | None, path: Path, name: str) -> Place:
    endings = [ending for ending in files if (ending == wanted.lower().lstrip(".") if wanted else ending in _IMAGES)]
    if len(endings) != 1:
        held = ", ".join(f".{ending}" for ending in sorted(files))
        problem = "several images" if endings else f"no image{f' .{wanted}' if wanted else ''}"
        raise BadData(f"{path}: sample {name!r} has {problem} among {held}; give image: the ending of the image")
    return files[endings[0]]


def _label(files: Mapping[str, Place], wanted: str | None, path: Path, name: str) -> str:
    field = wanted.removeprefix("json.") if wanted and wanted.startswith("json.") else None
    endings = ["json"] if field else [wanted.lower().lstrip(".")] if wanted else list(_LABELS)
    ending = next((each for each in endings if each in files), None)
    if ending is None:
        held = ", ".join(f".{each}" for each in sorted(files))
        raise BadData(f"{path}: sample {name!r} has no label among {held}; give label: its ending, or json.FIELD")
    if files[ending][1] > _MAX_LABEL:
        raise BadData(f"{path}: the label of sample {name!r} is a file of {files[ending][1]} bytes; give label: another ending")
    content = _content(path, files[ending])
    try:
        if not field:
            return content.decode("utf-8").strip()
        value = parse_json(content, what=f"{path}: {name}.json")[field]
    except (BadJson, ValueError, KeyError, TypeError):
        raise BadData(f"{path}: the label of sample {name!r} cannot be read from .{ending}; give label: another ending") from None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadData(f"{path}: the label of sample {name!r} is {value!r}; a name or a number is needed")
    return str(value)


def _listing(paths: Sequence[Path], listed: pa.Table) -> Mapping[str, str]:
    """A hash over the shards' names and sizes and all samples' names and labels."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.name} {path.stat().st_size}\n".encode())
    for image_id, number in zip(listed["image_id"], listed["label"], strict=True):
        total.update(f"{image_id} {number}\n".encode())
    return {"shards": str(len(paths)), "samples": str(len(listed)), "listing": total.hexdigest()}
