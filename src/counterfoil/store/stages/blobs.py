"""Images and tensors that stages make, stored once each under the hash of their content."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path, PurePosixPath

from counterfoil.core.errors import BadRun
from counterfoil.store.files import write_shared, writing
from counterfoil.store.images import IMAGES, Images

_IMAGE = ".png"


class Blobs:
    """Files of a run that lines of stage tables name by their content, as in `3f/3f….png`.

    Images lie with those of the run's trials, so that each is stored once.
    """

    def __init__(self, run: Path) -> None:
        self._run, self._others = run, run / "stages" / "blobs"
        self._images = Images(run)

    def put(self, content: bytes, suffix: str) -> str:
        """Store `content` and return its name."""
        digest = hashlib.sha256(content).hexdigest()
        name = f"{digest[:2]}/{digest}{suffix}"
        if name not in self:
            path = self.path(name)
            with writing(path):
                write_shared(path, content, token=uuid.uuid4().hex)
        return name

    def path(self, name: str) -> Path:
        """Place of a blob that is a file of its own."""
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise BadRun(f"{self._others}: {name!r} points outside the run; correct the line that names it")
        return (self._run / IMAGES if inside.suffix == _IMAGE else self._others) / inside

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self.path(name).is_file() or (name.endswith(_IMAGE) and self._images.at(image_of(name)).is_file())

    def read(self, name: str) -> bytes:
        """Content of a blob."""
        path = self.path(name)
        try:
            return self._images.at(image_of(name)).read_bytes() if path.suffix == _IMAGE else path.read_bytes()
        except OSError as error:
            raise BadRun(f"{path}: cannot be read ({error.strerror}); repeat the run's command") from None

    @staticmethod
    def hash_of(name: str) -> str:
        """The SHA-256 that a name holds."""
        return PurePosixPath(name).name.partition(".")[0]


def image_of(blob: str) -> str:
    """Name of an image in the run's records, by its name in a stage table."""
    return f"{IMAGES}/{blob}"
