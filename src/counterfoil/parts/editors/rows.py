"""What is asked of a row before a diffusion works on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def picture_fault(image: Tensor, size: int) -> str | None:
    """Why a picture cannot be inverted, or None."""
    shape = "×".join(map(str, image.shape))
    if image.dim() != 3 or image.shape[0] not in (1, 3, 4):
        return f"a picture has the shape 3×{size}×{size}, got {shape}"
    if image.shape[0] == 4:
        return f"the picture has an alpha channel ({shape}); put it on a ground first, as counterfoil.parts.images.read does"
    if image.shape[0] == 1:
        return f"the picture has one channel ({shape}); repeat it for red, green and blue"
    if tuple(image.shape[1:]) != (size, size):
        return f"the picture is {image.shape[2]}×{image.shape[1]}, the editor works at {size}×{size}; resize it first"
    if not image.is_floating_point():
        return f"pixel values are floating point in [0, 1], got {image.dtype}; divide 8-bit pictures by 255"
    if not bool(torch.isfinite(image).all()):
        return "the picture has pixels that are not numbers"
    low, high = (float(value) for value in torch.aminmax(image))
    if low < -1e-3 or high > 1 + 1e-3:
        return f"pixel values lie in [0, 1], got {low:.3g} to {high:.3g}; divide 8-bit pictures by 255"
    return None


def caption_fault(caption: str, tokens: Callable[[str], list[int]], *, longest: int, what: str) -> str | None:
    """Why a caption cannot be used, or None; `longest` counts the start and end tokens."""
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
