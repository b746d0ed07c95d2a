"""Finding a run's pictures, whether each is a file of its own or they lie in packs."""

from __future__ import annotations

import errno
import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from counterfoil.core.errors import BadRun
from counterfoil.store import parts
from counterfoil.store.pack import SUFFIX, PackReader

_HELD = 64  # indexes of packs kept in memory


class PictureFile(Protocol):
    """What `Run.picture` answers: enough of a path to read a picture by."""

    @property
    def name(self) -> str: ...

    def is_file(self) -> bool: ...

    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True)
class Packed:
    """A picture inside a pack."""

    pictures: Pictures
    digest: bytes

    @property
    def name(self) -> str:
        """As the file would be called."""
        return f"{self.digest.hex()}.png"

    def __str__(self) -> str:
        return str(self.pictures.root / parts.picture_name(self.digest.hex()))

    def is_file(self) -> bool:
        """Whether it is there."""
        return self.pictures.pack_of(self.digest) is not None

    def read_bytes(self) -> bytes:
        """The PNG file."""
        for _ in range(2):
            pack = self.pictures.pack_of(self.digest)
            content = pack.read(self.digest) if pack is not None else None
            if content is not None and hashlib.sha256(content).digest() == self.digest:
                return content
            self.pictures.forget()  # a pack may have been written anew since its index was read
        raise FileNotFoundError(errno.ENOENT, "missing from the run's packs, or damaged there", str(self))


class Pictures:
    """The pictures of a run directory by their names, `images/3f/3f….png`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[str, PackReader] = OrderedDict()
        self._lock = threading.Lock()  # a server reads from several threads

    def at(self, name: str) -> PictureFile:
        """The picture of that name, there or not; BadRun if the name leads out of the run."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:  # a run from elsewhere must not point a report at other files
            raise BadRun(f"picture {name!r} is outside the run; don't use this directory")
        file = self.root / path
        digest = _digest(path)
        return file if digest is None or file.is_file() or not self._has_packs() else Packed(self, digest)

    def pack_of(self, digest: bytes) -> PackReader | None:
        """The pack that holds a picture: the ones used last are tried first, as pictures are asked for in their order."""
        with self._lock:
            for name in reversed(self._open):
                if self._open[name].find(digest) is not None:
                    self._open.move_to_end(name)
                    return self._open[name]
            for path in self._paths():
                if path.name not in self._open:
                    reader = self._opened(path)
                    if reader is not None and reader.find(digest) is not None:
                        return reader
            return None

    def forget(self) -> None:
        """Read the packs' indexes anew."""
        with self._lock:
            self._open.clear()

    def _opened(self, path: Path) -> PackReader | None:
        try:
            reader = PackReader(path)
        except (OSError, ValueError):
            return None
        self._open[path.name] = reader
        while len(self._open) > _HELD:
            self._open.popitem(last=False)
        return reader

    def _paths(self) -> list[Path]:
        """The packs, from the one after the last that was used, as the next picture is most likely there."""
        found = sorted((self.root / parts.IMAGES).glob(f"*{SUFFIX}"))
        last = next(reversed(self._open), "")
        return [path for path in found if path.name > last] + [path for path in found if path.name <= last]

    def _has_packs(self) -> bool:
        return bool(self._open) or next((self.root / parts.IMAGES).glob(f"*{SUFFIX}"), None) is not None


def _digest(path: PurePosixPath) -> bytes | None:
    try:
        digest = bytes.fromhex(path.stem)
    except ValueError:
        return None
    return digest if len(digest) == 32 else None
