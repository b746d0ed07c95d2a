"""An oracle that compares pictures with the classes' names in words, by a model that embeds both."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Encoder, Verdicts
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE, check_templates, compare, embed_prompts
from counterfoil.parts.oracles.acceptance import MOST_PROBABLE, Acceptance


class ZeroShotOracle:
    """Sees the class whose name is nearest to the picture. Its score is the model's own probability of the label.

    With several templates a class is the mean of their embeddings, each of length one, brought to length one again.
    """

    def __init__(
        self, encoder: Encoder, *, templates: str | Sequence[str] = PAPER_TEMPLATE, acceptance: Acceptance = MOST_PROBABLE
    ) -> None:
        self.encoder = encoder
        self.templates = check_templates(templates)
        self.acceptance = acceptance
        self._texts: Tensor | None = None  # (K, D), of length one

    def bind(self, classes: Sequence[str]) -> ZeroShotOracle:
        """The oracle with the prompts of `classes` embedded."""
        bound = copy(self)
        bound._texts = embed_prompts(self.encoder, classes, self.templates)
        return bound

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of the bound classes, differentiable.  # (N, 3, H, W) → (N, K)"""
        if self._texts is None:
            raise BadPart("oracle: bind it to class names before it judges")
        logits = compare(self.encoder, images, self._texts)  # (N, K)
        return logits.sigmoid() if self.encoder.pairwise else logits.softmax(dim=-1)

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts on whether each picture shows its label.  # (N, 3, H, W), (N,) int64"""
        return self.acceptance.decide(self.probabilities(images), labels)

    def to(self, device: torch.device | str) -> ZeroShotOracle:
        """The same oracle, moved to a device."""
        self.encoder.to(device)
        self._texts = None if self._texts is None else self._texts.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The encoder's weights and the prompts."""
        return {**self.encoder.provenance(), "templates": " | ".join(self.templates)}
