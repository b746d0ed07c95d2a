"""Compares images with the classes' names in words, by a model that embeds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadPart, LabelMismatch
from counterfoil.parts import labels as names
from counterfoil.parts.contracts import Encoder

PAPER_TEMPLATE = "an image of {class}"
"""The prompt of the paper on foundation-model-oriented robustness."""

TEXTS_AT_ONCE = 64


def check_templates(templates: str | Sequence[str]) -> list[str]:
    """The templates as a list, each with a place for the class in it."""
    asked = [templates] if isinstance(templates, str) else list(templates)
    for template in asked:
        if "{class}" not in template:
            raise BadPart(f"the template {template!r} has no place for the class; write '{{class}}' there")
    if not asked:
        raise BadPart("no templates given; leave the option out for the default")
    return asked


@torch.no_grad()
def embed_prompts(encoder: Encoder, classes: Sequence[str], templates: Sequence[str]) -> Tensor:
    """One embedding of length one per class: the mean over the templates, each of length one.  # → (K, D)"""
    words = phrases(classes)
    prompts = [template.replace("{class}", word) for template in templates for word in words]
    batches = [prompts[start : start + TEXTS_AT_ONCE] for start in range(0, len(prompts), TEXTS_AT_ONCE)]
    embedded = torch.cat([functional.normalize(encoder.embed_texts(batch).float(), dim=-1) for batch in batches])
    mean = embedded.reshape(len(templates), len(words), -1).mean(dim=0)  # (K, D)
    return functional.normalize(mean, dim=-1)


def compare(encoder: Encoder, images: Tensor, texts: Tensor) -> Tensor:
    """Logits of images against embedded prompts, differentiable.  # (N, 3, H, W), (K, D) → (N, K)"""
    embedded = functional.normalize(encoder.embed_images(images).float(), dim=-1)  # (N, D)
    return encoder.logits(embedded @ texts.T)


def phrases(classes: Sequence[str]) -> list[str]:
    """Class names as words for a prompt: the first of several names, without underscores; the full name if that is taken."""
    first = [names.split(name)[0].replace("_", " ") for name in classes]
    shared = {name for name, times in Counter(first).items() if times > 1}
    words = [full.replace("_", " ") if name in shared else name for name, full in zip(first, classes, strict=True)]
    twice, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise LabelMismatch(f"{times} classes are called {twice!r}, which words cannot tell apart; give them other names")
    return words
