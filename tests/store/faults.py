"""Disks that fail, processes that are killed between two changes, and damaged files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

real_open = os.open


def failing(real: Callable[..., Any], code: int, *, after: int) -> Callable[..., Any]:
    """A call of the operating system that fails with an error code once it was made so many times."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        creates = real is not real_open or arguments[1] & os.O_CREAT  # a full disk can still be read
        calls += creates
        if creates and calls > after:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return call


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


class Killed(BaseException):
    """Stands for SIGKILL: from here on nothing that the process does reaches the disk."""


def mortal(patch: pytest.MonkeyPatch, *, after: int) -> list[int]:
    """Let `after` changes to the disk happen, half-do the next and none of the rest; answer a counter of them."""
    calls = [0]

    def wrap(name: str):
        real = getattr(os, name)

        def call(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            calls[0] += 1
            if calls[0] > after:
                if name == "write" and calls[0] == after + 1:
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Killed
            return real(*arguments, **options)

        return call

    for name in ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir"):
        patch.setattr(os, name, wrap(name))
    return calls
