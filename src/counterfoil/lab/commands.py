"""What the lab's own commands, `python -m counterfoil.lab.…`, share: arguments that are checked, and errors of one line."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from counterfoil.core.errors import CounterfoilError, UsageError


def at_least_one(text: str) -> int:
    """An argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, got {text!r}")
    return int(text)


def above_zero(text: str) -> float:
    """An argument that is an amount."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"a number above 0 is needed, got {text!r}")
    return amount


def a_seed(text: str) -> int:
    """An argument that seeds something, as large as torch takes it, with room for what is added to it."""
    if not text.isdecimal() or int(text) >= 2**62:
        raise argparse.ArgumentTypeError(f"a whole number from 0 on and below 2^62 is needed, got {text!r}")
    return int(text)


def writable(folder: Path) -> Path:
    """The folder, made if it is not there, if files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UsageError(f"{folder}: nothing can be written there ({error.strerror}); give another folder") from None


def usable_device(name: str) -> str:
    """The device, if torch can work on it."""
    try:
        torch.empty(1, device=name)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        said = str(error).partition("\n")[0].partition(". ")[0]
        raise UsageError(f"no device {name!r} to work on ({said}); '--device cpu' always works") from None
    return name


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Say what was raised on purpose in one line and exit with its code, as the `counterfoil` command does."""
    try:
        yield
    except CounterfoilError as error:
        print(f"counterfoil: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
