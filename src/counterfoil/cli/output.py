"""Output of commands: lines on the terminal, without foreign control characters, and a file checked before the work."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from counterfoil.core.errors import UsageError, printable

Write = Callable[[bytes], None]


def echo(text: object = "", *, err: bool = False) -> None:
    """Print text, in which names, paths and messages of others may stand."""
    typer.echo(printable(str(text)), err=err)


def output(path: Path | None, option: str) -> Write:
    """Refuse a file that cannot be written, and answer what writes it; where none is asked for, that writes nothing."""
    if path is None:
        return lambda content: None
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file in it")
    try:
        _try(path)
    except OSError as error:
        raise _refusal(path, option, error) from None

    def write(content: bytes) -> None:
        try:
            path.write_bytes(content)
        except OSError as error:
            raise _refusal(path, option, error) from None

    return write


def _try(path: Path) -> None:
    """Raise OSError if a file cannot be written; make its folder, and leave the file itself as it is."""
    if path.exists():
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    with suppress(FileExistsError):  # which may be a file; refused below
        path.parent.mkdir(parents=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def _refusal(path: Path, option: str, error: OSError) -> UsageError:
    return UsageError(f"{option} {path}: cannot be written ({error.strerror or error}); choose another file")
