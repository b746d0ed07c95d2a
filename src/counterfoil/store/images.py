"""Images of a run: PNG files named by their content, each a file of its own or, in a large run, in the zip of a chunk."""

from __future__ import annotations

import errno
import hashlib
import io
import re
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.errors import BadRun
from counterfoil.core.tables import read_bytes

IMAGES = "images"
ZIP = ".zip"

_NAME = re.compile(rf"{IMAGES}/([0-9a-f]{{2}})/(\1[0-9a-f]{{62}})\.png")
_HELD = 16  # zips whose directories are kept in memory


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


def read_zip(path: Path) -> dict[str, bytes]:
    """All PNG files of a zip by their hashes."""
    with zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".png"): archive.read(name) for name in archive.namelist()}


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
        self._open: OrderedDict[Path, zipfile.ZipFile] = OrderedDict()
        self._lock = threading.Lock()  # a server reads from several threads

    def at(self, name: str) -> ImageFile:
        """The image of that name, there or not; BadRun if no image of a run can have the name."""
        return ImageFile(self, digest_of(name))

    def read_from_zip(self, digest: str) -> bytes | None:
        """Bytes of an image out of whichever zip holds it whole; if none does, empty or out of one that holds it."""
        content = None
        for _ in range(2):
            archive = self.find(digest)
            try:
                content = archive.read(f"{digest}.png") if archive is not None else None
            except (OSError, ValueError, zipfile.BadZipFile):  # altered, or closed meanwhile for others
                content = b""
            if content is not None and hashlib.sha256(content).hexdigest() == digest:
                return content
            with self._lock:
                self._open.clear()  # a zip may have been written again since its directory was read
        return content

    def find(self, digest: str) -> zipfile.ZipFile | None:
        """The zip that holds an image. Those used last are tried first, as images are mostly read in their order."""
        name = f"{digest}.png"
        with self._lock:
            for path in reversed(self._open):
                if name in self._open[path].NameToInfo:
                    self._open.move_to_end(path)
                    return self._open[path]
            found = sorted((self.root / IMAGES).glob(f"*{ZIP}"))
            last = next(reversed(self._open), Path())
            for path in [path for path in found if path > last] + [path for path in found if path <= last]:
                if path not in self._open and (archive := self._open_archive(path)) is not None and name in archive.NameToInfo:
                    return archive
            return None

    def _open_archive(self, path: Path) -> zipfile.ZipFile | None:
        try:
            archive = self._open[path] = zipfile.ZipFile(path)
        except (OSError, ValueError, zipfile.BadZipFile):
            return None
        while len(self._open) > _HELD:
            self._open.popitem(last=False)
        return archive
