"""Files that are written whole or not at all, JSON in one form, and the lock of a run directory."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from pydantic import TypeAdapter

from counterfoil.core.errors import BadRun, printable
from counterfoil.core.tables import read_json

TEMPORARY = ".tmp"
"""Suffix of unfinished files. The next writer removes them."""

LOCK = "run.lock"
_TRIES, _PAUSE = 5, 0.02  # a second try is for those who only ask whether the lock is held
DECIMALS = 6

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


def write_temporary(path: Path, data: bytes | memoryview) -> Path:
    """Write `data` to `path` with the temporary suffix, and return that path."""
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


def sync(path: Path) -> None:
    """Force a file, or the list of names of a folder, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, *, token: str = "", synced: bool = True) -> None:
    """Write a file such that it is there in full or, whatever happens, not at all.

    With a `token` of one's own, others may be writing the same content; the entry in the folder is not forced onto the disk
    then, as what a power cut takes is made again. Without `synced` the caller does so for the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = write_temporary(path.with_name(f"{path.name}.{token}") if token else path, data)
    try:
        if synced:
            sync(temporary)
        os.replace(temporary, path)
        if not token:
            sync(path.parent)
    except BaseException:
        remove(temporary)
        raise


def remove(path: Path) -> None:
    """Remove a file if it is there and can be removed; leftovers are harmless."""
    with suppress(OSError):
        path.unlink()


def size_of(path: Path) -> int:
    """Size of a file; -1 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, read piece by piece; empty where there is none."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def key_of(name: str) -> int:
    """Stable 64-bit hash of an id, so that a million of them need little memory."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_as(kind: Any, path: Path) -> Any:
    """The value of a JSON file, as a dataclass or another type; ValueError where it holds something else."""
    return _adapter(kind).validate_python(read_json(path))


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, floats to six decimals and a newline at the end: equal content is equal bytes.

    NaN is refused: write null and say why in a note.
    """
    text = json.dumps(_plain(value, "", DECIMALS), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def plain(value: Any) -> Any:
    """Convert a value to what JSON would give back: tuples become lists, paths text; floats keep all their digits."""
    return _plain(value, "", None)


def _plain(value: Any, where: str, decimals: int | None) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where or 'value'}: {value} has no place in JSON; give null and a note")
        return value if decimals is None else round(value, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}".lstrip("."), decimals) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", decimals) for index, item in enumerate(value)]
    raise ValueError(f"{where or 'value'}: {type(value).__name__} has no place in JSON")


_held: set[int] = set()


def _release_in_child() -> None:
    # A forked worker shares the parent's lock and would keep it when the parent is killed.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise BadRun that names who does. The kernel releases it however the process ends."""
    with writing(folder):
        descriptor = _acquire(folder)
    _held.add(descriptor)
    try:
        yield
    finally:
        _held.discard(descriptor)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds the lock of a folder: a writer that starts now would be refused."""
    with suppress(OSError), (folder / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment, in which a writer that starts tries again
        except BlockingIOError:
            return True
    return False


def refuse_second_writer(folder: Path) -> None:
    """Raise BadRun if a process is writing to the folder."""
    if is_locked(folder):
        raise BadRun(_in_use(folder))


def _acquire(folder: Path) -> int:
    path, tries = folder / LOCK, 0
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                with suppress(OSError):  # the lock holds without a signature; a full disk is reported by what comes next
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
                return descriptor
        except BlockingIOError:
            if (tries := tries + 1) == _TRIES:
                os.close(descriptor)
                raise BadRun(_in_use(folder)) from None
            time.sleep(_PAUSE)
        except FileNotFoundError:  # a writer that gave up removed the file: take the new one
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _in_use(folder: Path) -> str:
    owner = ""  # while it has only begun
    with suppress(OSError), (folder / LOCK).open("rb") as file:
        owner = printable(file.read(200).decode(errors="replace"))
    return f"{folder}: {owner or 'another process'} is writing here; wait for it, or choose another --out"
