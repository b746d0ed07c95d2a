"""A model that embeds pictures and words, as a classifier of chosen classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.contracts import Encoder
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE, check_templates, compare, embed_prompts
from counterfoil.parts.models.naming import named


class ZeroShotModel:
    """Classifies by the class whose prompt is nearest. Logits are similarities on the scale the encoder was trained at."""

    differentiable = True

    def __init__(
        self,
        encoder: Encoder,
        classes: Sequence[str],
        *,
        templates: str | Sequence[str] = PAPER_TEMPLATE,
        aliases: labels.Aliases | None = None,
    ) -> None:
        if isinstance(classes, str) or len(classes) < 2:
            raise BadPart(f"a zero-shot classifier needs the names of two or more classes, got {classes!r}")
        self.encoder = encoder
        self.templates = check_templates(templates)
        self.classes: Sequence[str] = list(classes)
        self.aliases = aliases
        self._texts = embed_prompts(encoder, self.classes, self.templates)  # (K, D)

    @property
    def size(self) -> int | None:
        """Side of the square pictures the encoder takes, or None where it takes any."""
        return self.encoder.size

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax.  # (N, 3, H, W) → (N, K)"""
        return compare(self.encoder, images, self._texts)

    def to(self, device: torch.device | str) -> ZeroShotModel:
        """The same model, moved to a device."""
        self.encoder.to(device)
        self._texts = self._texts.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The encoder's weights and the prompts."""
        return {**self.encoder.provenance(), "templates": " | ".join(self.templates)}


def zero_shot(
    encoder: Encoder, classes: str | Sequence[str] | None, *, templates: str | Sequence[str], what: str
) -> ZeroShotModel:
    """A zero-shot classifier from an encoder and class names as an option gives them."""
    found = named(classes)
    if found is None:
        raise BadPart(
            f"{what}: compares pictures with words and has no classes of its own; give classes: a list, a file with one "
            "name a line, or imagenet"
        )
    return ZeroShotModel(encoder, found[0], templates=templates, aliases=found[1])
