"""A world of coloured squares: the object is the colour in the middle, the nuisance that of the border."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import RunFailed
from counterfoil.parts.contracts import Verdicts
from counterfoil.protocols.imagenet_d import ImagenetDSpec
from counterfoil.protocols.workspace import Given

THINGS = {"mug": (1.0, 0.0, 0.0), "sock": (0.0, 1.0, 0.0), "lamp": (0.0, 0.0, 1.0), "bag": (1.0, 1.0, 0.0)}
PLACES = {"beach": (0.9, 0.8, 0.6), "forest": (0.1, 0.4, 0.1), "night": (0.05, 0.05, 0.2), "snow": (0.95, 0.95, 1.0)}
CLOTHS = {"striped": (0.5, 0.5, 0.5), "dotted": (0.3, 0.6, 0.9)}
NUISANCES = {**PLACES, **CLOTHS}
GRID: dict[str, Any] = {
    "objects": list(THINGS),
    "nuisances": {
        "background": {"words": list(PLACES), "templates": ["a photo of {a} {object} in the {nuisance}"]},
        "texture": {"words": list(CLOTHS), "templates": ["a photo of {a} {object} that is {nuisance}"]},
    },
    "images": 3,
}


@dataclass
class SquarePainter:
    """Paints the world. `spoil` may replace an image, and after `fails_after` images the endpoint is gone."""

    spoil: Callable[[str, Tensor], Tensor] = lambda prompt, image: image
    fails_after: int | None = None
    painted: list[str] = field(default_factory=list)

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        if self.fails_after is not None and len(self.painted) + len(prompts) > self.fails_after:
            raise RunFailed("http://painter: status 503; what was done is kept, the same command resumes it")
        self.painted += prompts
        return torch.stack([self.spoil(text, _draw(text, int(seed))) for text, seed in zip(prompts, seeds, strict=True)])


@dataclass
class SquareModel:
    """Sees the middle, except where its border is one of `blind`: there it says `says`."""

    blind: Sequence[str] = ()
    says: str | None = None  # None: the class after the right one
    classes: Sequence[str] = tuple(THINGS)
    differentiable: bool = False
    shares: dict[str, str] = field(default_factory=dict)  # border → class, whatever is in the middle

    def logits(self, images: Tensor) -> Tensor:
        rows = []
        for image in images:
            thing = _nearest(image[:, 6:10, 6:10].mean((1, 2)), THINGS)
            place = _nearest(image[:, :2, :].mean((1, 2)), NUISANCES)
            names = list(THINGS)
            answer = self.shares.get(place, thing)
            if place in self.blind:
                answer = self.says or names[(names.index(thing) + 1) % len(names)]
            rows.append(torch.tensor([4.0 if name == answer else 0.0 for name in self.classes]))
        return torch.stack(rows)


class SquareOracle:
    """Sees the middle, and nothing in images of a bag in the snow."""

    def bind(self, classes: Sequence[str]) -> SquareOracle:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        keeps = []
        for image, label in zip(images, labels.tolist(), strict=True):
            thing = _nearest(image[:, 6:10, 6:10].mean((1, 2)), THINGS)
            place = _nearest(image[:, :2, :].mean((1, 2)), NUISANCES)
            keeps.append(list(THINGS).index(thing) == label and (thing, place) != ("bag", "snow"))
        kept = torch.tensor(keeps)
        return Verdicts(kept.to(torch.int8), kept.float(), torch.where(kept, labels, -1))


@dataclass
class Scripted:
    """A vision-language model that answers by a rule that gets the two choices in their order."""

    rule: Callable[[str, str], str]

    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        found = []
        for question in questions:
            first, second = question.rpartition("[")[2].rstrip("].").split(", ")
            found.append(self.rule(first, second))
        return found


def _draw(prompt: str, seed: int) -> Tensor:
    thing = next(name for name in THINGS if f" {name} " in prompt)
    place = next(name for name in NUISANCES if name in prompt.split())
    image = torch.tensor(NUISANCES[place])[:, None, None].repeat(1, 16, 16)
    image[:, 4:12, 4:12] = torch.tensor(THINGS[thing])[:, None, None]
    noise = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(seed)) - 0.5
    return (image + 0.08 * noise.repeat_interleave(4, 1).repeat_interleave(4, 2)).clamp(0, 1)


def _nearest(colour: Tensor, known: dict[str, tuple[float, float, float]]) -> str:
    return min(known, key=lambda name: float((torch.tensor(known[name]) - colour).square().sum()))


def make_parts(**changes: Any) -> Given:
    """Parts of the world by name."""
    parts: dict[str, Any] = {
        "fake:painter": SquarePainter(),
        "fake:oracle": SquareOracle(),
        "fake:a": SquareModel(blind=("beach", "forest", "snow")),
        "fake:b": SquareModel(blind=("forest", "snow", "night")),
        "fake:unseen": SquareModel(blind=("forest",)),
        "fake:shortcut": SquareModel(shares={"forest": "mug", "beach": "sock", "night": "lamp", "snow": "bag"}),
        "fake:good": SquareModel(),
    }
    return Given({**parts, **{f"fake:{name}": part for name, part in changes.items()}})


def values(**changes: Any) -> dict[str, Any]:
    """A specification in plain values."""
    return {
        "protocol": "imagenet-d",
        "grid": GRID,
        "painter": "fake:painter",
        "surrogates": ["fake:a", "fake:b"],
        "models": ["fake:unseen", "fake:shortcut", "fake:good"],
        "oracle": "fake:oracle",
        "mining": {"duplicates": None},
        **changes,
    }


def spec(**changes: Any) -> ImagenetDSpec:
    """The specification."""
    found: ImagenetDSpec = protocols.parse(values(**changes))
    return found


FOREST_AND_SNOW = 4 * 2 * 3 - 3  # what both surrogates miss, less the bags in the snow, where the oracle sees none
