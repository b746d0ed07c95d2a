"""Pictures and tensors that stages make, kept once each under the hash of their content."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path, PurePosixPath

from counterfoil.core.errors import BadRun
from counterfoil.store.files import remove, settle, write_temporary, writing


class Blobs:
    """A folder of files named by their content."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, content: bytes, suffix: str) -> str:
        """Keep `content` and answer its name, as in `3f/3f….png`."""
        digest = hashlib.sha256(content).hexdigest()
        name = f"{digest[:2]}/{digest}{suffix}"
        path = self.root / name
        if not path.exists():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # A name of its own, as two threads, or workers on two machines, may be keeping the same content.
                temporary = write_temporary(path.with_name(f"{path.name}.{uuid.uuid4().hex}"), content)
                try:
                    settle(temporary)
                    os.replace(temporary, path)  # a folder's entry that a power cut takes away is missed on resuming
                except BaseException:
                    remove(temporary)
                    raise
        return name

    def path(self, name: str) -> Path:
        """Where a blob is."""
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise BadRun(f"{self.root}: {name!r} points outside the run; correct the line that names it")
        return self.root / inside

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.path(name).is_file()

    def read(self, name: str) -> bytes:
        """A blob's content."""
        try:
            return self.path(name).read_bytes()
        except OSError as error:
            raise BadRun(f"{self.path(name)}: cannot be read ({error.strerror}); repeat the run's command") from None

    @staticmethod
    def hash_of(name: str) -> str:
        """The SHA-256 that a name holds."""
        return PurePosixPath(name).name.partition(".")[0]
