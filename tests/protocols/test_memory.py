"""Peak memory does not grow with the data set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.worlds import arrays

ROOT = Path(__file__).parents[2]


def peak(data: Path, out: Path) -> float:
    """Peak memory in MiB of a run over `data`, in a process of its own."""
    command = [sys.executable, "-m", "tests.protocols.memory_child", data, out]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def test_ten_times_the_images_take_the_same_memory(tmp_path):
    few = peak(arrays(tmp_path / "few.npz", 2_000, 8), tmp_path / "few")
    many = peak(arrays(tmp_path / "many.npz", 20_000, 8), tmp_path / "many")
    assert many < 1.1 * few
