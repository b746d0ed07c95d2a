"""Settings for a process of our own, the command's or a worker's. A user's process is left as it is."""

from __future__ import annotations

import ctypes
import os
import sys

WAITING = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Threads that wait for each other sleep: where they spin, they take the cores from whatever else runs there."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGEST = 2**31 - 1


def let_threads_sleep() -> None:
    """Let waiting threads sleep, unless the environment says otherwise. OpenMP reads this when torch is imported."""
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)


def keep_freed_memory() -> None:
    """Ask glibc not to hand freed memory back to the system, for the rest of the process.

    Every iteration frees and takes the same activations again. Handed back in between, each page of them is faulted in and
    zeroed again; on two cores that took up to half of the CPU time.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # other C libraries have none
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGEST)
