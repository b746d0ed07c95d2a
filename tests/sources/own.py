"""The smallest part of each role that keeps its contract, as one would write it in a file of one's own and name by `python:`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.parts.contracts import Caption, EditResult, Inversion, Proposals, Refusal, RewriteRequest, Sample, Verdicts
from tests.fakes import CLASSES
from tests.worlds import label_images


class Bright:
    """An oracle that believes every label of an image that is not too dark, and calls it the first class."""

    def __init__(self, darkest: float = 0.1) -> None:
        self.darkest = darkest

    def bind(self, classes: Sequence[str]) -> Bright:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        scores = images.mean((1, 2, 3))
        return Verdicts((scores > self.darkest).to(torch.int8), scores, torch.zeros_like(labels))


def photos(count: int = 12) -> tuple[Any, Any, Sequence[str]]:
    """A data set as arrays."""
    return *label_images(count), CLASSES


class Shade:
    """A captioner that sees light and dark."""

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        return [Caption("a light photo" if image.mean() > 0.5 else "a dark photo") for image in images]


class Snow:
    """A rewriter to which snow is the answer to everything."""

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        return [Proposals((f"{request.caption} in the snow",)) for request in requests]


class Fade:
    """An editor that fades an image."""

    size, sweep = None, ("a little", "much")

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        pairs = zip(images, captions, strict=True)
        return [Inversion(words, {"image": image}) if len(image) == 3 else Refusal("no colours") for image, words in pairs]

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        found: list[EditResult | Refusal] = []
        for inversion, words in zip(inversions, edited, strict=True):
            image = inversion.tensors["image"]
            found.append(EditResult(torch.stack([0.8 * image, 0.2 * image]), image) if words.strip() else Refusal("no words"))
        return found


class Noise:
    """A painter of noise."""

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        return torch.stack([torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(int(seed))) for seed in seeds])


class Means:
    """An encoder of mean colours, and of words by how often they have r, g and b."""

    def embed_images(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        return torch.tensor([[1.0 + text.count(letter) for letter in "rgb"] for text in texts])


class Parrot:
    """A chat that says the last word of the question."""

    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        return [question.split()[-2] for question in questions]


PARTS = {
    "oracle": Bright, "dataset": photos, "captioner": Shade, "rewriter": Snow, "editor": Fade, "painter": Noise, "encoder": Means,
    "chat": Parrot,
}  # fmt: skip
"""The maker of a part, by role."""


def part_name(role: str) -> str:
    """The part of a role, by the file and its name there."""
    return f"python:{Path(__file__)}:{PARTS[role].__name__}"


RECIPES = {(role, "python"): lambda folder, stack, role=role: (part_name(role), {}) for role in PARTS}
