"""A world of coloured squares in which words are colours, small enough to run a whole LANCE protocol in a moment.

An image shows a square, left for a dog and right for a cat, on a plain ground. The words after the animal colour the
ground, those before it the square. Captioner, editor and encoder know this, so edits come out as they should.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import BadImage
from counterfoil.parts.contracts import (
    Caption,
    EditResult,
    Inversion,
    Proposals,
    Refusal,
    Rejection,
    RewriteRequest,
    Sample,
    Verdicts,
)
from counterfoil.protocols.lance import LanceSpec
from counterfoil.protocols.workspace import Given

CLASSES = ("dog", "cat")
SIDE = 16
PLACES = ("on a beach", "in a forest", "on a road", "in a kitchen")
COLOURS = ("red", "blue", "green", "black")
PLANTED = {"dog": "on a beach", "cat": "in a forest"}


def colour(words: str) -> Tensor:
    """A colour for words, the same every time."""
    digest = hashlib.sha256(words.encode()).digest()
    return torch.tensor([digest[0], digest[1], digest[2]]) / 255


def parse(caption: str) -> tuple[str, str, str]:
    """Words before the animal, the animal, and words after it."""
    words = caption.split()
    at = next((index for index, word in enumerate(words) if word in CLASSES), len(words))
    return " ".join(words[:at]), words[at] if at < len(words) else "", " ".join(words[at + 1 :])


def draw(caption: str) -> Tensor:
    """The image that a caption describes.  # → (3, 16, 16)"""
    before, animal, after = parse(caption)
    image = colour(after).reshape(3, 1, 1).repeat(1, SIDE, SIDE)
    left = 2 if animal == "dog" else 9
    image[:, 5:11, left : left + 5] = colour(before).reshape(3, 1, 1)
    return (image * 255).round() / 255


def ground(images: Tensor) -> Tensor:
    return images[:, :, 0, 0]  # (N, 3)


def shows(images: Tensor) -> Tensor:
    """The animal in each image: 0 a dog, 1 a cat.  # → (N,)"""
    there = [(images[:, :, 8, at] - ground(images)).abs().sum(1) for at in (4, 11)]
    return (there[1] > there[0]).long()


@dataclass
class Pets:
    """Images of pets, on the ground planted for them, with captions."""

    count: int = 24
    broken: tuple[int, ...] = ()
    classes: Sequence[str] = CLASSES

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Sample]:
        for index in range(self.count):
            animal = CLASSES[index % 2]
            caption = f"a photo of a {COLOURS[index // 2 % len(COLOURS)]} {animal} {PLANTED[animal]}"
            yield Sample(f"pet-{index:03d}", index % 2, f"pets[{index}]", caption)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        if int(sample.image_id[4:]) in self.broken:
            raise BadImage(f"{sample.source}: damaged")
        return draw(sample.caption)


@dataclass
class Told:
    """Says the caption that came with the data."""

    mute: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        self.asked += [sample.image_id for sample in samples]
        return [Caption("", "says nothing") if each.image_id in self.mute else Caption(each.caption) for each in samples]


@dataclass
class Swap:
    """Puts each other place and colour in, and once in a while something useless."""

    asked: list[RewriteRequest] = field(default_factory=list)

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        self.asked += requests
        return [self._one(request) for request in requests]

    def _one(self, request: RewriteRequest) -> Proposals:
        words = {"background": PLACES, "adjective": COLOURS}.get(request.factor, ())
        old = next((word for word in words if word in request.caption), None)
        if old is None:
            return Proposals(rejections=(Rejection(request.factor, "", "no-proposal"),))
        start = request.seed % len(words)
        order = [*words[start:], *words[:start]]
        return Proposals(tuple(request.caption.replace(old, new) for new in order))


@dataclass
class Redraw:
    """Draws the edited caption, once rightly and once with half the change."""

    size: int | None = SIDE
    sweep: Sequence[str] = ("half", "whole")
    refuses: str = "kitchen"
    inverted: int = 0
    edited: int = 0

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        self.inverted += len(images)
        return [Inversion(caption, {"picture": image}) for image, caption in zip(images, captions, strict=True)]

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        self.edited += len(edited)
        return [self._one(inversion.tensors["picture"], caption) for inversion, caption in zip(inversions, edited, strict=True)]

    def _one(self, picture: Tensor, caption: str) -> EditResult | Refusal:
        if self.refuses and self.refuses in caption:
            return Refusal("not a number while redrawing")
        whole = draw(caption)
        return EditResult(torch.stack([(picture + whole) / 2, whole]), picture)


class Eye:
    """Sees ground, square and animal, in images as in words."""

    pairwise = False
    preprocessing: Any = None

    def embed_images(self, images: Tensor) -> Tensor:
        animal = shows(images)
        square = torch.stack([images[row, :, 8, 4 if animal[row] == 0 else 11] for row in range(len(images))])
        return self._vector(ground(images), square, animal)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        read = [parse(text) for text in texts]
        animal = torch.tensor([CLASSES.index(each[1]) if each[1] else 0 for each in read])
        known = torch.tensor([bool(each[1]) for each in read])
        vector = self._vector(
            torch.stack([colour(each[2]) for each in read]), torch.stack([colour(each[0]) for each in read]), animal
        )
        vector[~known, 6:] = 0
        return vector

    def _vector(self, ground: Tensor, square: Tensor, animal: Tensor) -> Tensor:
        return torch.cat([2 * (ground - 0.5), 2 * (square - 0.5), torch.nn.functional.one_hot(animal, 2).float()], dim=1)


class Sure:
    """An oracle that sees which animal is there, except on a road, where it sees a cat."""

    def bind(self, classes: Sequence[str]) -> Sure:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        seen = shows(images)
        road = (ground(images) - colour("on a road")).abs().sum(1) < 0.05
        seen = torch.where(road, 1, seen)
        return Verdicts((seen == labels).to(torch.int8), (seen == labels).float(), seen)


class Leaning:
    """A classifier that looks at the ground alone."""

    classes, differentiable, size = CLASSES, False, SIDE

    def logits(self, images: Tensor) -> Tensor:
        planted = torch.stack([colour(PLANTED[animal]) for animal in CLASSES])  # (2, 3)
        return -8 * (ground(images)[:, None] - planted[None]).abs().sum(2)


class Looking(Leaning):
    """A classifier that looks at the animal."""

    def logits(self, images: Tensor) -> Tensor:
        return 6 * torch.nn.functional.one_hot(shows(images), 2).float()


class Picky(Looking):
    """A classifier that looks at the animal, and errs where its square is reddish."""

    def logits(self, images: Tensor) -> Tensor:
        seen = shows(images)
        square = torch.stack([images[row, 0, 8, 4 if seen[row] == 0 else 11] for row in range(len(images))])
        return 6 * torch.nn.functional.one_hot(torch.where(square > 0.5, 1 - seen, seen), 2).float()


def make_parts(**parts: Any) -> Given:
    """The parts of this world, some of them replaced."""
    own: dict[str, Any] = {
        "dataset": Pets(), "captioner": Told(), "rewriter": Swap(), "editor": Redraw(), "encoder": Eye(),
        "oracle": Sure(), "model": Leaning(),
    }  # fmt: skip
    return Given({**own, **parts})


def spec(**changes: Any) -> LanceSpec:
    """A specification over this world."""
    values: dict[str, Any] = {
        "protocol": "lance", "model": "python:here:Leaning", "data": "object:pets", "captioner": "object:told",
        "rewriter": "object:swap", "editor": "object:redraw", "encoder": "object:eye", "oracle": "object:sure",
        "edit": {"factors": ["background", "adjective", "weather"], "per_factor": 2, "class_similarity": 1.0},
        "quality": {"image_image": -1, "image_text": -1, "directional": 0.5},
        "engine": {"batch": 5},
    }  # fmt: skip
    return protocols.parse({**values, **changes})
