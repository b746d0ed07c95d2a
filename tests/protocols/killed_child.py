"""Runs a specification in a process of its own, slowly enough to be killed on the way, and says when it is under way."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from counterfoil import protocols
from counterfoil.protocols.base import Progress


def run(values: dict, out: str, pace: float, begun) -> None:
    """The target of the test's child processes."""
    torch.set_num_threads(1)

    def watch(progress: Progress) -> None:
        begun.set()
        time.sleep(pace)

    protocols.run(protocols.parse(values), Path(out), watch=watch)
    sys.exit(0)
