"""Disks that fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

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
