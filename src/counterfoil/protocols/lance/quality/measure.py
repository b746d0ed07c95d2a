"""Measures how pictures and captions changed together, with a model that embeds both."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.parts.contracts import Encoder
from counterfoil.protocols.lance.quality.rule import Similarities


class Ruler:
    """An encoder asked about a fixed number of pictures at a time, and about one text, so that no number hangs on a neighbour."""

    def __init__(self, encoder: Encoder, *, tile: int, device: torch.device | str = "cpu") -> None:
        self._encoder, self._tile, self._device = encoder, tile, device

    @torch.no_grad()
    def images(self, pictures: Sequence[Tensor]) -> Tensor:
        """Embeddings of length one.  # (3, H, W) each → (N, D)"""
        rows = []
        for start in range(0, len(pictures), self._tile):
            some = list(pictures[start : start + self._tile])
            batch = torch.stack(some + some[-1:] * (self._tile - len(some))).to(self._device)
            rows.append(functional.normalize(self._encoder.embed_images(batch).float(), dim=-1)[: len(some)].cpu())
        return torch.cat(rows)

    @torch.no_grad()
    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of length one.  # → (N, D)"""
        return torch.cat([functional.normalize(self._encoder.embed_texts([text]).float(), dim=-1).cpu() for text in texts])


def compared(source: Tensor, made: Tensor, *, before: Tensor, after: Tensor) -> list[Similarities]:
    """How each picture made changed against its source, by embeddings of both and of the captions before and after.

    All have length one.  # (D,), (S, D), (D,), (D,)
    """
    words = functional.normalize(after - before, dim=-1)
    found = []
    for image in made:
        change = functional.normalize(image - source, dim=-1)  # zero for a picture that did not change
        found.append(
            Similarities(
                image_image=float(image @ source),
                source_text=float(source @ before),
                edited_text=float(image @ after),
                old_text=float(image @ before),
                directional=float(change @ words),
            )
        )
    return found
