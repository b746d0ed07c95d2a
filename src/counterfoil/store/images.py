"""Images of a run: PNG files named by their content, each a file of its own or, in a large run, in the zip of a chunk."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import struct
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun
from counterfoil.core.tables import read_bytes

IMAGES = "images"
ZIP = ".zip"

_NAME = re.compile(rf"{IMAGES}/([0-9a-f]{{2}})/(\1[0-9a-f]{{62}})\.png")
_HELD = 64  # indexes of zips kept in memory
_LOCAL = 30  # bytes of an entry's own header, before its name
_END = struct.Struct("<4s4H2LH")  # of a zip without a comment
_ROW = np.dtype([("signature", "S4"), ("made", "V16"), ("size", "<u4"), ("plain", "<u4"), ("lengths", "V6"), ("attributes", "V8"),
                 ("offset", "<u4"), ("name", "S68")])  # of a zip's directory; all our names have 68 letters  # fmt: skip


def image_name(png: bytes) -> str:
    """Name of an image, relative to the run directory: by content, so that equal images are stored once."""
    digest = hashlib.sha256(png).hexdigest()
    return f"{IMAGES}/{digest[:2]}/{digest}.png"


def digest_of(name: str) -> str:
    """SHA-256 in the name of an image; BadRun for any other name, as a run from elsewhere must not point at other files."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise BadRun(f"image {name!r} is outside the run; don't use this directory")
    return found[2]


def zip_of(images: Mapping[str, bytes]) -> memoryview:
    """A zip of PNG files by their hashes, uncompressed. Any tool opens it."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for digest, png in images.items():
            archive.writestr(zipfile.ZipInfo(f"{digest}.png"), png)
    return found.getbuffer()


class _Directory:
    """Directory of one zip, searched by the first 64 bits of a hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - _END.size, 0))
            signature, _, _, _, count, length, start, _ = _END.unpack(stream.read())
            stream.seek(start)
            rows = np.frombuffer(stream.read(length), dtype=_ROW)
        if signature != b"PK\5\6" or len(rows) != count or (rows["signature"] != b"PK\1\2").any():
            raise ValueError(f"{path.name} is not a whole zip of images")
        keys = np.array([int(name[:16], 16) for name in rows["name"]], dtype=np.uint64)
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[["offset", "size", "name"]][order]

    def read(self, digest: str) -> bytes | None:
        """Bytes of an image as they are in the zip; None if it is not there."""
        row = self._row(digest)
        if row is None:
            return None
        with self.path.open("rb") as stream:
            stream.seek(int(row["offset"]))
            name, extra = struct.unpack("<26x2H", stream.read(_LOCAL))
            stream.seek(name + extra, os.SEEK_CUR)
            return stream.read(int(row["size"]))

    def __contains__(self, digest: str) -> bool:
        return self._row(digest) is not None

    def _row(self, digest: str) -> NDArray[np.void] | None:
        at = int(np.searchsorted(self._keys, np.uint64(int(digest[:16], 16))))
        while at < len(self._rows) and self._rows[at]["name"][:16] == digest[:16].encode():
            if self._rows[at]["name"] == f"{digest}.png".encode():
                row: NDArray[np.void] = self._rows[at]
                return row
            at += 1
        return None


@dataclass(frozen=True)
class ImageFile:
    """One image of a run, as much of a path as is needed to read it."""

    images: Images
    digest: str

    @property
    def name(self) -> str:
        """File name."""
        return f"{self.digest}.png"

    @property
    def path(self) -> Path:
        """Place of the image where it is a file of its own."""
        return self.images.root / IMAGES / self.digest[:2] / self.name

    def __str__(self) -> str:
        return str(self.path)

    def is_file(self) -> bool:
        """Tell whether the image is there."""
        return self.path.is_file() or self.images.find(self.digest) is not None

    def read_bytes(self) -> bytes:
        """Read the PNG file. Content that does not have the hash in its name is never returned."""
        try:
            content: bytes | None = read_bytes(self.path)
        except FileNotFoundError:
            content = self.images.read_from_zip(self.digest)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "missing; repeat the run's command and it is made again", str(self))
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise OSError(errno.EIO, "damaged; delete it, and the run's command makes it again", str(self))
        return content


class Images:
    """Images of a run directory by their names, `images/3f/3f….png`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[str, _Directory] = OrderedDict()
        self._lock = threading.Lock()  # a server reads from several threads

    def at(self, name: str) -> ImageFile:
        """The image of that name, there or not; BadRun if no image of a run can have the name."""
        return ImageFile(self, digest_of(name))

    def read_from_zip(self, digest: str) -> bytes | None:
        """Bytes of an image out of whichever zip holds it whole; if none does, out of one that holds it."""
        content = None
        for _ in range(2):
            directory = self.find(digest)
            content = directory.read(digest) if directory is not None else None
            if content is not None and hashlib.sha256(content).hexdigest() == digest:
                return content
            with self._lock:
                self._open.clear()  # a zip may have been written again since its directory was read
        return content

    def find(self, digest: str) -> _Directory | None:
        """The zip that holds an image. Those used last are tried first, as images are mostly read in their order."""
        with self._lock:
            for name in reversed(self._open):
                if digest in self._open[name]:
                    self._open.move_to_end(name)
                    return self._open[name]
            found = sorted((self.root / IMAGES).glob(f"*{ZIP}"))
            last = next(reversed(self._open), "")
            for path in [path for path in found if path.name > last] + [path for path in found if path.name <= last]:
                if path.name not in self._open and (directory := self._opened(path)) is not None and digest in directory:
                    return directory
            return None

    def _opened(self, path: Path) -> _Directory | None:
        try:
            directory = _Directory(path)
        except (OSError, ValueError, struct.error):
            return None
        self._open[path.name] = directory
        while len(self._open) > _HELD:
            self._open.popitem(last=False)
        return directory
