"""Pictures in WebDataset tar files."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from counterfoil.core.errors import BadData
from counterfoil.parts import images, labels
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets import shards

_PICTURES = frozenset(ending.removeprefix(".") for ending in images.EXTENSIONS)
_LABELS = ("cls", "label", "cls.txt", "label.txt", "class")


def webdataset(
    pattern: str, *, image: str | None = None, label: str | None = None, classes: str | Sequence[str] | None = None
) -> ShardDataset:
    """Pictures in WebDataset tar files: webdataset:photos-{000..012}.tar.

    A sample is the files of one name; `image` is the ending of its picture, if it has several, and `label` that of its
    label (cls by default), or `json.FIELD` for a field of its JSON file. Labels are names, or numbers that count
    `classes`: a list, or a file with one name a line, by default classes.txt beside the first shard. Shards are plain tar
    files, not compressed; nothing is unpickled.
    """
    if not pattern:
        raise BadData("webdataset: name tar files, as in webdataset:photos-{000..012}.tar")
    return ShardDataset(shards.expand(pattern), image=image, label=label, classes=classes)


class ShardDataset:
    """Samples of tar files, in their order. Image ids are the shard's name and the sample's."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        image: str | None = None,
        label: str | None = None,
        classes: str | Sequence[str] | None = None,
    ) -> None:
        self._paths = list(paths)
        self._names: list[str] = []
        self._places = shards.Places()
        written: list[str] = []
        for number, path in enumerate(self._paths):
            for name, files in shards.samples(number, path):
                self._names.append(f"{path.stem}/{name}")
                self._places.add(_picture(files, image, path, name))
                written.append(_label(files, label, path, name))
        found = labels.resolve_labels(written, classes, what=str(paths[0]), folder=self._paths[0].parent)
        self._labels = array("l", (found.numbers[value] for value in written))
        self.classes: Sequence[str] = found.classes
        self.aliases: labels.Aliases | None = found.aliases
        if len(set(self._names)) < len(self._names):
            ((twice, _),) = Counter(self._names).most_common(1)
            raise BadData(f"{paths[0]}: the sample {twice!r} occurs twice; give shards and samples names of their own")

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Sample]:
        for name, label, member in zip(self._names, self._labels, self._places, strict=True):
            yield Sample(name, label, name, place=member.place)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        return self.reader().load(sample, size)

    def reader(self) -> ShardReader:
        """For workers that are told what to read."""
        return ShardReader(tuple(self._paths))

    def provenance(self) -> dict[str, str]:
        """A hash over the shards' names and sizes and all samples' names and labels."""
        total = hashlib.sha256()
        for path in self._paths:
            total.update(f"{path.name} {path.stat().st_size}\n".encode())
        for sample in self:
            total.update(f"{sample.image_id} {sample.label}\n".encode())
        return {"shards": str(len(self._paths)), "samples": str(len(self)), "listing": total.hexdigest()}


@dataclass(frozen=True)
class ShardReader:
    """Pictures whose places are those of members of tar files."""

    paths: tuple[Path, ...]

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        member = shards.Member.at(sample.place)
        return images.read(shards.content(self.paths[member.shard], member), size, name=sample.source)


def _picture(files: Mapping[str, shards.Member], wanted: str | None, path: Path, name: str) -> shards.Member:
    endings = [ending for ending in files if (ending == wanted.lower().lstrip(".") if wanted else ending in _PICTURES)]
    if len(endings) != 1:
        held = ", ".join(f".{ending}" for ending in sorted(files))
        problem = "several pictures" if endings else f"no picture{f' .{wanted}' if wanted else ''}"
        raise BadData(f"{path}: sample {name!r} has {problem} among {held}; give image: the ending of the picture")
    return files[endings[0]]


def _label(files: Mapping[str, shards.Member], wanted: str | None, path: Path, name: str) -> str:
    field = wanted.removeprefix("json.") if wanted and wanted.startswith("json.") else None
    endings = ["json"] if field else [wanted.lower().lstrip(".")] if wanted else list(_LABELS)
    ending = next((each for each in endings if each in files), None)
    if ending is None:
        held = ", ".join(f".{each}" for each in sorted(files))
        raise BadData(f"{path}: sample {name!r} has no label among {held}; give label: its ending, or json.FIELD")
    content = shards.content(path, files[ending])
    try:
        if not field:
            return content.decode("utf-8").strip()
        value = json.loads(content)[field]
    except (ValueError, KeyError, TypeError):
        raise BadData(f"{path}: the label of sample {name!r} cannot be read from .{ending}; give label: another ending") from None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadData(f"{path}: the label of sample {name!r} is {value!r}; a name or a number is needed")
    return str(value)
