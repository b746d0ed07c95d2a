"""Reject unusable rows, answer the others in batches; inversions as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from counterfoil.core.errors import BadRun, one_line
from counterfoil.parts.batches import in_batches
from counterfoil.parts.contracts import Inversion, Refusal

Row = TypeVar("Row")
Answer = TypeVar("Answer")


def answer_rows(
    rows: Sequence[Row],
    fault: Callable[[Row], str | None],
    call: Callable[[list[Row]], Sequence[Answer | Refusal]],
    *,
    batch: int,
    smaller: Callable[[int], None] = lambda batch: None,
) -> list[Answer | Refusal]:
    """One answer per row, in order: a refusal for a row with a fault, else the answer of `call`."""
    faults = [fault(row) for row in rows]
    usable = [row for row, reason in zip(rows, faults, strict=True) if reason is None]
    found = iter(in_batches(usable, batch, call, smaller=smaller, what="editor"))
    return [next(found) if reason is None else Refusal(reason) for reason in faults]


def image_fault(image: Tensor, size: int) -> str | None:
    """The reason why an image cannot be inverted, or None."""
    shape = "×".join(map(str, image.shape))
    if image.dim() != 3 or image.shape[0] not in (1, 3, 4):
        return f"an image has the shape 3×{size}×{size}, got {shape}"
    if image.shape[0] == 4:
        return f"the image has an alpha channel ({shape}); put it on a ground first, as counterfoil.parts.images.read does"
    if image.shape[0] == 1:
        return f"the image has one channel ({shape}); repeat it for red, green and blue"
    if tuple(image.shape[1:]) != (size, size):
        return f"the image is {image.shape[2]}×{image.shape[1]}, the editor works at {size}×{size}; resize it first"
    if not image.is_floating_point():
        return f"pixel values are floating point in [0, 1], got {image.dtype}; divide 8-bit images by 255"
    if not bool(torch.isfinite(image).all()):
        return "the image has pixels that are not numbers"
    low, high = (float(value) for value in torch.aminmax(image))
    if low < -1e-3 or high > 1 + 1e-3:
        return f"pixel values lie in [0, 1], got {low:.3g} to {high:.3g}; divide 8-bit images by 255"
    return None


def caption_fault(caption: str, tokens: Callable[[str], list[int]], *, longest: int, what: str) -> str | None:
    """The reason why a caption cannot be used, or None; `longest` counts the start and end tokens."""
    words = caption.split()
    if not words:
        return f"{what} is empty"
    if len(caption) > 50 * longest:  # far beyond any caption that fits: not worth the tokenizer's time
        return f"{what} has {len(caption)} characters, far beyond the {longest} tokens that the text encoder reads"
    found = tokens(caption)
    if len(found) + 2 > longest:
        return f"{what} has {len(found) + 2} tokens with start and end, the text encoder reads {longest}: {caption[:40]!r}…"
    if [token for word in words for token in tokens(word)] != found:
        return f"{what} cannot be cut into words that the tokenizer reads alike on their own: {caption[:60]!r}"
    return None


def to_bytes(inversion: Inversion) -> bytes:
    """The inversion as a safetensors file, with the caption in the header."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in inversion.tensors.items()}
    return bytes(save(tensors, metadata={"caption": inversion.caption}))


def from_bytes(content: bytes, *, name: str = "inversion") -> Inversion:
    """The inversion that `to_bytes` gave; `name` is what errors call it."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        caption = json.loads(content[8 : 8 + length])["__metadata__"]["caption"]
        return Inversion(str(caption), load(content))
    except Exception as error:  # safetensors meets damaged content with exceptions of several kinds
        raise BadRun(f"{name}: not an inversion ({one_line(error)}); delete it, it will be made again") from None
