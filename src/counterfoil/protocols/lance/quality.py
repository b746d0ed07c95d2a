"""Quality control of edited images: how well image and caption changed together, and which edit of a sweep is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.protocols.lance.spec import QualitySpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from counterfoil.parts.contracts import Embedder

CHECKS = {
    "image changed too much": "the edited image is too unlike the source image",
    "caption does not fit": "the source image is too unlike its own caption",
    "edit does not fit": "the edited image is too unlike the edited caption",
    "wrong direction": "the image did not change the way the caption did",
    "still the old words": "the edited image is nearer to the old caption than to the new one",
}
"""The checks in their order, with a sentence for people."""


@dataclass(frozen=True)
class Similarities:
    """Cosine similarities of one edited image."""

    image_image: float  # source image and edited image
    source_text: float  # source image and caption
    edited_text: float  # edited image and edited caption
    old_text: float  # edited image and the caption before the edit
    directional: float  # change of the image and change of the caption

    def fault(self, bars: QualitySpec) -> tuple[str, str] | None:
        """The first check it fails and by how much, or None."""
        checks = (
            (self.image_image, bars.image_image),
            (self.source_text, bars.image_text),
            (self.edited_text, bars.image_text),
            (self.directional, bars.directional),
        )
        for name, (value, bar) in zip(CHECKS, checks, strict=False):
            if not value >= bar:
                return name, f"{value:.3f} is below {bar:g}"
        if bars.nearer and not self.edited_text > self.old_text:
            return "still the old words", f"{self.edited_text:.3f} to the new caption, {self.old_text:.3f} to the old one"
        return None


@dataclass(frozen=True)
class SelectedEdit:
    """The edit that is kept, or the check that none of the sweep passed."""

    index: int  # in the sweep; of the nearest miss where nothing is kept
    check: str = ""
    reason: str = ""


def select_edit(sweep: Sequence[Similarities], bars: QualitySpec) -> SelectedEdit:
    """The edit to keep: of those that pass the one of highest directional similarity, or the last, as asked."""
    faults = [each.fault(bars) for each in sweep]
    passing = [index for index, fault in enumerate(faults) if fault is None]
    if passing:
        best = max(passing, key=lambda index: (sweep[index].directional, -index))
        return SelectedEdit(best if bars.choose == "best" else passing[-1])
    order = list(CHECKS)
    # The nearest miss speaks for the sweep: the one that got furthest through the checks.
    index, fault = max(
        ((index, fault) for index, fault in enumerate(faults) if fault is not None),
        key=lambda each: (order.index(each[1][0]), sweep[each[0]].directional),
    )
    return SelectedEdit(index, *fault)


class EmbeddingBatches:
    """Embeddings by an encoder, of a fixed number of images per call and of one text, so that none depends on a neighbour."""

    def __init__(self, encoder: Embedder, *, batch: int, device: torch.device | str = "cpu") -> None:
        self._encoder, self._batch, self._device = encoder, batch, device

    def images(self, images: Sequence[Tensor]) -> Tensor:
        """Embeddings of length one.  # (3, H, W) each → (N, D)"""
        import torch

        from counterfoil.parts import calls
        from counterfoil.parts.calls import in_batches

        def embed(some: list[Tensor]) -> Tensor:
            found = calls.guard(self._encoder.embed_images, "the encoder")(torch.stack(some).to(self._device))
            return torch.nn.functional.normalize(found.float(), dim=-1).cpu()

        with torch.no_grad():
            return torch.stack(in_batches(images, self._batch, embed))  # type: ignore[arg-type]  # rows of a tensor

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of length one.  # → (N, D)"""
        import torch

        from counterfoil.parts import calls

        with torch.no_grad():
            rows = [calls.guard(self._encoder.embed_texts, "the encoder")([text]).float() for text in texts]
            return torch.cat([torch.nn.functional.normalize(row, dim=-1).cpu() for row in rows])


def similarities(source: Tensor, edited: Tensor, *, before: Tensor, after: Tensor) -> list[Similarities]:
    """Similarities of each edited image, by embeddings of the images and of the captions before and after.

    All have length one.  # (D,), (S, D), (D,), (D,)
    """
    from torch.nn.functional import normalize

    words = normalize(after - before, dim=-1)
    found = []
    for image in edited:
        change = normalize(image - source, dim=-1)  # zero for an image that did not change
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
