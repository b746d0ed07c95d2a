"""Tar files as WebDataset writes them, indexed once and then read anywhere, without unpacking or unpickling."""

from __future__ import annotations

import glob
import itertools
import re
import tarfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from counterfoil.core.errors import BadData, BadImage

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Member:
    """One file of a sample: where its bytes are."""

    shard: int
    offset: int
    size: int

    @property
    def place(self) -> str:
        """The same as a word, for samples to carry."""
        return f"{self.shard}:{self.offset}:{self.size}"

    @classmethod
    def at(cls, place: str) -> Member:
        """The member that a word stands for."""
        return cls(*map(int, place.split(":")))


class Places:
    """Where the bytes of many files are, in a few bytes each."""

    def __init__(self) -> None:
        self._shards, self._offsets, self._sizes = array("l"), array("q"), array("q")

    def add(self, member: Member) -> None:
        self._shards.append(member.shard)
        self._offsets.append(member.offset)
        self._sizes.append(member.size)

    def __iter__(self) -> Iterator[Member]:
        return map(Member, self._shards, self._offsets, self._sizes)


def expand(pattern: str) -> list[Path]:
    """The files of a pattern: `{000..009}` counts, `{a,b}` lists, `*` and `?` are looked up on the disk."""
    names = [""]
    parts = _BRACES.split(pattern)  # text, inside of braces, text, …
    for at, part in enumerate(parts):
        names = [name + choice for name, choice in itertools.product(names, _choices(part) if at % 2 else [part])]
    found: list[Path] = []
    for name in names:
        path = Path(name).expanduser()
        listed = sorted(glob.glob(str(path))) if any(mark in name for mark in "*?[") and not path.exists() else [str(path)]
        found.extend(Path(entry) for entry in listed)
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        raise BadData(f"webdataset: no such file: {missing[0] if missing else pattern}; write it as in photos-{{000..012}}.tar")
    return found


def samples(shard: int, path: Path) -> Iterator[tuple[str, dict[str, Member]]]:
    """The samples of a shard: their common name, and their files by ending."""
    current, files = "", dict[str, Member]()
    try:
        with tarfile.open(path, "r:") as archive:
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
                files[ending.lower()] = Member(shard, entry.offset_data, entry.size)
    except tarfile.ReadError as error:
        hint = "unpack it with gunzip first" if path.suffix in (".gz", ".tgz") else "copy it again"
        raise BadData(f"{path}: cannot be read as a tar file ({error}); {hint}") from None
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
    if files:
        yield current, files


def content(path: Path, member: Member) -> bytes:
    """The bytes of a file inside a shard."""
    with path.open("rb") as file:
        file.seek(member.offset)
        found = file.read(member.size)
    if len(found) != member.size:
        raise BadImage(f"{path}: ends within a file; the shard was cut short, copy it again")
    return found


def _choices(inside: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if not span:
        return inside.split(",")
    first, last = int(span[1]), int(span[2])
    width = len(span[1]) if span[1].startswith("0") else 0
    return [str(number).zfill(width) for number in range(first, last + 1)]
