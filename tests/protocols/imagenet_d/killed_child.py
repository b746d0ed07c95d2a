"""Runs the world of squares in a process of its own, slowly enough to be killed on the way."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from counterfoil import protocols
from tests.protocols.imagenet_d.world import make_parts, spec


def run(out: str, pace: float, begun: Any) -> None:
    """The target of the test's child processes."""
    torch.set_num_threads(1)

    def watch(progress: Any) -> None:
        begun.set()
        time.sleep(pace)

    protocols.run(spec(engine={"batch": 4, "chunk_images": 8}), Path(out), given=make_parts(), watch=watch)
    sys.exit(0)
