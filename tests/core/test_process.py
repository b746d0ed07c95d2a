"""A process of our own keeps freed memory; a user's process is left as it is."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from counterfoil.core import process
from counterfoil.protocols.workspace import device_of


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_only_a_process_of_our_own_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda option, value: asked.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    device_of("cpu")  # as every run from Python does
    assert asked == []
    process.keep_freed_memory()
    assert len(asked) == 2
