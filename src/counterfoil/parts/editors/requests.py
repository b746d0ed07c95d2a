"""Refuse unusable rows, answer the others in batches; keep inversions as bytes."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from counterfoil.core.errors import BadRun, one_line
from counterfoil.parts.calls import in_batches
from counterfoil.parts.contracts import EditResult, Inversion, Refusal

Row = TypeVar("Row")
Answer = TypeVar("Answer")


class RowEditor(ABC):
    """An editor that answers row by row: those that cannot be used are refused, the others go through in batches."""

    size: int | None
    tokenizer: Any = None
    """The text encoder's tokenizer, for captions that have to fit; None where any text does."""
    longest: int = 512  # tokens of a text, start and end included
    by_word: bool = False  # whether words have to be read alike on their own

    def __init__(self) -> None:
        self._most: dict[str, int] = {}  # rows per batch, where memory did not suffice for more

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """One inversion per image, to be kept and used for every edit of it."""
        rows = list(zip(images, captions, [int(seed) for seed in seeds], strict=True))
        with self._computing():
            return self._answer("invert", rows, self._image_fault, self._invert, self._rows_per_batch()[0])

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The images redrawn to the edited captions, a candidate for every setting of the sweep."""
        rows = list(zip(inversions, edited, strict=True))
        with self._computing():
            return self._answer("edit", rows, self._edit_fault, self._edit, self._rows_per_batch()[1])

    @abstractmethod
    def _invert(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        """One inversion per image, caption and seed."""

    @abstractmethod
    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        """One result per inversion and edited caption."""

    @abstractmethod
    def _inversion_fault(self, inversion: Inversion) -> str | None:
        """The reason why this editor cannot use an inversion, or None."""

    def _computing(self) -> AbstractContextManager[None]:
        """The precision of the networks' products."""
        return nullcontext()

    def _rows_per_batch(self) -> tuple[int, int]:
        """Images that are inverted, and edits that are made, per batch."""
        return 1, 1

    def _image_fault(self, row: tuple[Tensor, str, int]) -> str | None:
        image, caption, _ = row
        side = self.size or (int(image.shape[-1]) if image.dim() == 3 else 0)
        return image_fault(image, side) or self._text_fault(caption, "the caption")

    def _edit_fault(self, row: tuple[Inversion, str]) -> str | None:
        inversion, edited = row
        fault = self._inversion_fault(inversion)
        if fault is not None:
            return f"the inversion holds {fault}; invert the image again"
        return self._text_fault(inversion.caption, "the caption") or self._text_fault(edited, "the edited caption")

    def _text_fault(self, text: str, what: str) -> str | None:
        """The reason why a text cannot be used, or None. With `by_word`, its tokens have to be those of its words."""
        words, longest = text.split(), self.longest
        if not words or self.tokenizer is None:
            return None if words else f"{what} is empty"
        if len(text) > 50 * longest:  # far beyond any caption that fits: not worth the tokenizer's time
            return f"{what} has {len(text)} characters, far beyond the {longest} tokens that the text encoder reads"
        found = plain_tokens(self.tokenizer, text)
        if len(found) + 2 > longest:
            return f"{what} has {len(found) + 2} tokens with start and end, the text encoder reads {longest}: {text[:40]!r}…"
        if self.by_word and [token for word in words for token in plain_tokens(self.tokenizer, word)] != found:
            return f"{what} cannot be cut into words that the tokenizer reads alike on their own: {text[:60]!r}"
        return None

    def _answer(
        self,
        what: str,
        rows: Sequence[Row],
        fault: Callable[[Row], str | None],
        call: Callable[[list[Row]], Sequence[Answer | Refusal]],
        batch: int,
    ) -> list[Answer | Refusal]:
        """One answer per row, in order: a refusal for a row with a fault, else the answer of `call`."""
        faults = [fault(row) for row in rows]
        usable = [row for row, reason in zip(rows, faults, strict=True) if reason is None]
        size, remember = min(batch, self._most.get(what, batch)), partial(self._most.__setitem__, what)
        found = iter(in_batches(usable, size, call, smaller=remember, what="editor"))
        return [next(found) if reason is None else Refusal(reason) for reason in faults]


def plain_tokens(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text without those for its start and end, however long it is."""
    return [int(token) for token in tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids]


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
