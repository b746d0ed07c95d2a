"""Inversions as bytes and files: safetensors, with the caption in the header."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from safetensors.torch import load, save

from counterfoil.errors import BadRun
from counterfoil.parts import Inversion

_CAPTION = "caption"


def to_bytes(inversion: Inversion) -> bytes:
    """The inversion as a safetensors file."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in inversion.tensors.items()}
    return bytes(save(tensors, metadata={_CAPTION: inversion.caption}))


def from_bytes(content: bytes, *, name: str = "inversion") -> Inversion:
    """The inversion that `to_bytes` gave; `name` is what errors call it."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        caption = json.loads(content[8 : 8 + length])["__metadata__"][_CAPTION]
        return Inversion(str(caption), load(content))
    except Exception as error:  # safetensors meets damaged content with exceptions of several kinds
        raise BadRun(
            f"{name}: not an inversion ({' '.join(str(error).split())[:120]}); delete it, it will be made again"
        ) from None


def write(path: Path, inversion: Inversion) -> None:
    """Write the inversion under another name and rename it, so that a file of that name is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(to_bytes(inversion))
    partial.replace(path)


def read(path: Path) -> Inversion:
    """The inversion in a file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadRun(f"{path}: cannot be read ({error.strerror})") from None
    return from_bytes(content, name=str(path))
