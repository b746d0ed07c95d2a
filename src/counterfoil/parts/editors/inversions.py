"""Inversions as bytes: safetensors, with the caption in the header."""

from __future__ import annotations

import json
import struct

from safetensors.torch import load, save

from counterfoil.core.errors import BadRun, one_line
from counterfoil.parts.contracts import Inversion

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
        raise BadRun(f"{name}: not an inversion ({one_line(error)}); delete it, it will be made again") from None
