"""Writing that leaves either the whole file or none, and says in one line why it could not."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from counterfoil.core.errors import BadRun

TEMPORARY = ".tmp"
"""Ending of files that are not finished. Only the holder of the lock makes them, so a fixed ending cannot clash."""

_ADVICE = {
    errno.ENOSPC: "free some space or choose another --out",
    errno.EDQUOT: "free some space or choose another --out",
    errno.EACCES: "check its permissions or choose another --out",
    errno.EPERM: "check its permissions or choose another --out",
    errno.EROFS: "choose another --out",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a BadRun that says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "choose another --out")
        raise BadRun(f"{path}: cannot be written ({error.strerror or error}); {advice}") from error


def write_temporary(path: Path, data: bytes) -> Path:
    """Write `data` beside `path` under a temporary name, and answer that name."""
    temporary = path.with_name(path.name + TEMPORARY)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BaseException:
        os.close(descriptor)
        remove(temporary)
        raise
    os.close(descriptor)
    return temporary


def settle(path: Path) -> None:
    """Force a file, or a folder's list of names, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there in full or, whatever happens, not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = write_temporary(path, data)
    try:
        settle(temporary)
        os.replace(temporary, path)
        settle(path.parent)
    except BaseException:
        remove(temporary)
        raise


def remove(path: Path) -> None:
    """Remove a file if it is there and can be removed; leftovers are harmless and go when the next writer opens."""
    with suppress(OSError):
        path.unlink()


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the folders, innermost first, that are empty."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(name: str) -> int:
    """Eight bytes that stand for an id, so that a million of them fit in little memory."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
