"""Packs: all pictures of a part in one file, for runs of so many that a file each would choke the disk.

PNG files end to end, then an index sorted by hash, then how many there are and eight letters that say what this is. A pack
is written once and never changed; what is in it is found by the picture's hash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SUFFIX = ".pack"
_MAGIC = b"CFPACK01"
_ROW = np.dtype([("head", ">u8"), ("tail", "V24"), ("offset", "<u8"), ("length", "<u8")])  # a SHA-256 in two pieces, and a place
_FOOTER = 8 + len(_MAGIC)
_BUFFER = 1 << 20  # bytes gathered before they are handed to the system


@dataclass(frozen=True)
class Pack:
    """A pack as it was when it was written."""

    bytes: int
    pictures: int


class PackWriter:
    """Writes pictures into a new pack, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[bytes, tuple[int, int]] = {}
        self._waiting = bytearray()
        self._end = 0
        self.finished: Pack | None = None
        """What was written, once it is whole."""
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def add(self, digest: bytes, png: bytes) -> None:
        """Put a picture at the end; one that is there already is left as it is."""
        if digest not in self._places:
            self._places[digest] = (self._end, len(png))
            self._append(png)

    def finish(self) -> Pack:
        """Write the index and force everything onto the disk; called again, it answers the same."""
        if self.finished is not None:
            return self.finished
        assert self._descriptor is not None
        rows = np.empty(len(self._places), dtype=_ROW)
        for at, (digest, (offset, length)) in enumerate(sorted(self._places.items())):
            rows[at] = (int.from_bytes(digest[:8], "big"), digest[8:], offset, length)
        self._append(rows.tobytes() + len(rows).to_bytes(8, "little") + _MAGIC)
        self._flush()
        os.fsync(self._descriptor)
        self.close()
        self.finished = Pack(bytes=self._end, pictures=len(rows))
        return self.finished

    def close(self) -> None:
        """Let go of the file; after `finish` it is whole, before that it is rubbish."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, data: bytes) -> None:
        self._waiting += data
        self._end += len(data)
        if len(self._waiting) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        assert self._descriptor is not None
        while self._waiting:
            del self._waiting[: os.write(self._descriptor, self._waiting)]


class PackReader:
    """Finds pictures in a pack by their hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows = _index(path)
        self._heads: NDArray[np.uint64] = self._rows["head"].astype(np.uint64)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[bytes]:
        """The hashes of its pictures."""
        for head, tail in zip(self._heads.tolist(), self._rows["tail"], strict=True):
            yield head.to_bytes(8, "big") + tail.tobytes()

    def find(self, digest: bytes) -> tuple[int, int] | None:
        """Where a picture begins and how long it is."""
        head, tail = int.from_bytes(digest[:8], "big"), digest[8:]
        at = int(np.searchsorted(self._heads, np.uint64(head)))
        while at < len(self._rows) and int(self._heads[at]) == head:
            row = self._rows[at]
            if row["tail"].tobytes() == tail:
                return int(row["offset"]), int(row["length"])
            at += 1
        return None

    def read(self, digest: bytes) -> bytes | None:
        """A picture's bytes; None if it is not in this pack."""
        place = self.find(digest)
        if place is None:
            return None
        with self.path.open("rb") as stream:
            stream.seek(place[0])
            return stream.read(place[1])


def _index(path: Path) -> NDArray[np.void]:
    """The index of a pack; ValueError if it is not whole."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - _FOOTER, 0))
        footer = stream.read()
        count = int.from_bytes(footer[:8], "little")
        start = size - _FOOTER - count * _ROW.itemsize
        if footer[8:] != _MAGIC or start < 0:
            raise ValueError(f"{path.name} is not a whole pack of pictures")
        stream.seek(start)
        return np.frombuffer(stream.read(count * _ROW.itemsize), dtype=_ROW)
