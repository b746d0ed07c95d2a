"""One writer a run directory. The kernel holds the lock, so it goes with the process however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from counterfoil.core.errors import BadRun
from counterfoil.store.files import writing

NAME = "run.lock"

_held: set[int] = set()


def _let_go_in_child() -> None:
    # A forked worker shares the parent's lock and would keep it when the parent is killed.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or say who does."""
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


def _acquire(folder: Path) -> int:
    path = folder / NAME
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(descriptor, path):
                _sign(descriptor)
                return descriptor
        except BlockingIOError:
            owner_now = _owner(descriptor)
            os.close(descriptor)
            raise BadRun(f"{folder}: {owner_now} is writing here; wait for it, or choose another --out") from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was removed by a writer that gave up; take the new one


def _sign(descriptor: int) -> None:
    """Say who holds the lock. The lock holds without it, so a full disk is reported by what comes next."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError, OSError):  # the owner has just begun
        return "another process"
