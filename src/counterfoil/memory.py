"""Keeps the process's memory where it is between iterations."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Ask glibc not to hand freed memory back to the system.

    Every iteration frees and takes the same activations again. Handed back in between, each page of them is faulted in and
    zeroed anew; on two cores that took up to half of the processor's time.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # other C libraries have none
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGEST)
