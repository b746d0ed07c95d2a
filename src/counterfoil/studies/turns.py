"""Turns at a run that several processes want: the first makes it, the others wait and then find it made. No torch here."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterfoil.core.errors import UsageError


class Turn:
    """The right to work at one run, and a note that the next one reads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def note(self) -> str:
        """What the last one left."""
        return os.pread(self._descriptor, 4096, 0).decode(errors="replace")

    def leave(self, note: str) -> None:
        """Leave a note for the next one."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, note.encode(), 0)


@contextmanager
def turn(file: Path) -> Iterator[Turn]:
    """Wait until nobody else holds `file`. The kernel holds it, so it is free again however its holder ends."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror}); choose another --out") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Turn(descriptor)
    finally:
        os.close(descriptor)
