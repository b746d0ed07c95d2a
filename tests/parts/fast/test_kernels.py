"""Triton's kernels on a CPU: its interpreter runs them line by line, in a process where it was asked for from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent / "interpreted_passes.py"


def test_kernels_agree_with_plain_pytorch() -> None:
    pytest.importorskip("triton")
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "pytest", str(CHECKS), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    asked = subprocess.run(
        command, cwd=root, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert asked.returncode == 0, asked.stdout[-3000:] + asked.stderr[-1000:]
