"""An oracle that compares pictures with the classes' names in words, by a model that embeds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil import labels as names
from counterfoil.errors import BadPart, LabelMismatch
from counterfoil.oracles.acceptance import MOST_PROBABLE, Acceptance
from counterfoil.parts import Verdicts

PAPER_TEMPLATE = "an image of {class}"
"""The prompt of the paper on foundation-model-oriented robustness."""

TEXTS_AT_ONCE = 64


class Encoder(Protocol):
    """Embeds pictures and words into one space, and turns their cosine similarity into logits."""

    def embed_images(self, images: Tensor) -> Tensor:
        """Embeddings of any length, differentiable.  # (N, 3, H, W) → (N, D)"""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of any length.  # → (len(texts), D)"""
        ...

    def logits(self, similarity: Tensor) -> Tensor:
        """Cosine similarities, scaled and shifted as the model was trained.  # (N, K)"""
        ...

    @property
    def pairwise(self) -> bool:
        """Whether each class has a probability of its own (sigmoid), instead of a share (softmax)."""
        ...

    def to(self, device: torch.device | str) -> Encoder: ...

    def provenance(self) -> dict[str, str]: ...


class ZeroShotOracle:
    """Sees the class whose name is nearest to the picture. Its score is the model's own probability of the label.

    With several templates a class is the mean of their embeddings, each of length one, brought to length one again.
    """

    def __init__(
        self, encoder: Encoder, *, templates: Sequence[str] = (PAPER_TEMPLATE,), acceptance: Acceptance = MOST_PROBABLE
    ) -> None:
        self.encoder = encoder
        self.templates = [templates] if isinstance(templates, str) else list(templates)
        self.acceptance = acceptance
        self._texts: Tensor | None = None  # (K, D), of length one
        for template in self.templates:
            if "{class}" not in template:
                raise BadPart(f"oracle: the template {template!r} has no place for the class; write '{{class}}' there")
        if not self.templates:
            raise BadPart("oracle: no templates given; leave the option out for the default")

    def bind(self, classes: Sequence[str]) -> ZeroShotOracle:
        """The oracle with the prompts of `classes` embedded."""
        bound = copy(self)
        bound._texts = self._embed(phrases(classes))
        return bound

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of the bound classes, differentiable.  # (N, 3, H, W) → (N, K)"""
        if self._texts is None:
            raise BadPart("oracle: bind it to class names before it judges")
        embedded = functional.normalize(self.encoder.embed_images(images).float(), dim=-1)  # (N, D)
        logits = self.encoder.logits(embedded @ self._texts.T)  # (N, K)
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

    @torch.no_grad()
    def _embed(self, classes: Sequence[str]) -> Tensor:
        prompts = [template.replace("{class}", name) for template in self.templates for name in classes]
        batches = [prompts[start : start + TEXTS_AT_ONCE] for start in range(0, len(prompts), TEXTS_AT_ONCE)]
        embedded = torch.cat([functional.normalize(self.encoder.embed_texts(batch).float(), dim=-1) for batch in batches])
        mean = embedded.reshape(len(self.templates), len(classes), -1).mean(dim=0)  # (K, D)
        return functional.normalize(mean, dim=-1)


def phrases(classes: Sequence[str]) -> list[str]:
    """Class names as words for a prompt: the first of several names, without underscores; the full name if that is taken."""
    first = [names.split(name)[0].replace("_", " ") for name in classes]
    shared = {name for name, times in Counter(first).items() if times > 1}
    words = [full.replace("_", " ") if name in shared else name for name, full in zip(first, classes, strict=True)]
    twice, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise LabelMismatch(f"oracle: {times} classes are called {twice!r}, which words cannot tell apart; give them other names")
    return words
