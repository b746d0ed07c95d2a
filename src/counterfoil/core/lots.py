"""Drawing lots by name, so that what is drawn hangs on nothing but what it is drawn for."""

from __future__ import annotations

import hashlib


def lot(*names: object) -> int:
    """A whole number of 64 bits that looks random and is always the same for the same names."""
    text = "\0".join(map(str, names)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
