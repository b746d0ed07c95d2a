"""The wardrobe world: its factors, the garments that ship, and scenes sampled from a distribution of factors."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Final

import numpy
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil_lab.drawing.canvas import bits, choice, uniform

GARMENTS: Final = ("t-shirt", "trousers", "pullover", "dress", "sandal", "sneaker", "bag", "boot")
COLOURS: Final = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
MATERIALS: Final = ("cotton", "denim", "leather", "silk", "wool", "metal")
TEXTURES: Final = ("plain", "striped", "dotted", "checkered", "zigzag", "camouflage")
BACKGROUNDS: Final = (
    "white studio",
    "grey studio",
    "wooden floor",
    "tiled floor",
    "brick wall",
    "bookshelf",
    "grass",
    "beach",
    "desert",
    "forest",
    "mountains",
    "night sky",
    "sunset",
    "water",
    "city",
    "road",
)
OBJECTS: Final = ("nothing", "ball", "cup", "cone", "lamp", "cube", "cactus")
DOMAINS: Final = ("photo", "sketch", "painting", "cartoon", "thermal", "neon")
WEATHERS: Final = ("clear", "rain", "fog", "snow", "wind")

FACTORS: Final[dict[str, tuple[str, ...]]] = {
    "garment": GARMENTS,
    "colour": COLOURS,
    "material": MATERIALS,
    "texture": TEXTURES,
    "background": BACKGROUNDS,
    "object": OBJECTS,
    "domain": DOMAINS,
    "weather": WEATHERS,
}

# These values leave no word in a caption: a caption that is silent about the factor states them.
UNSAID: Final[dict[str, str]] = {"texture": "plain", "object": "nothing", "weather": "clear"}

STUDIOS: Final = ("white studio", "grey studio")


@dataclass(frozen=True)
class Garments:
    """A set of garment shapes with their classes."""

    pixels: Tensor  # (M, 28, 28) uint8, 0 outside the garment
    labels: Tensor  # (M,) int64, index into GARMENTS

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor | slice) -> Garments:
        return Garments(self.pixels[index], self.labels[index])

    def to(self, device: str | torch.device) -> Garments:
        """The same garments on another device."""
        return Garments(self.pixels.to(device), self.labels.to(device))


def load_shipped(split: str) -> Garments:
    """The garments that come with the package: "report" or "tune", disjoint parts of Fashion-MNIST's test split."""
    if split not in ("report", "tune"):
        raise UnknownName(f"no shipped garments named {split!r}; choose 'report' or 'tune'")
    with _archive("garments.npz") as archive:
        return Garments(torch.from_numpy(archive[f"{split}_pixels"]), torch.from_numpy(archive[f"{split}_labels"]).long())


def _archive(name: str) -> NpzFile:
    """A data file of the package; pickled content is refused."""
    data = numpy.load(io.BytesIO((resources.files("counterfoil_lab") / name).read_bytes()), allow_pickle=False)
    assert isinstance(data, NpzFile)
    return data


DISTRIBUTIONS: Final = ("full", "narrow", "background-shortcut", "colour-shortcut", "planted")
PLANTED_SHARE: Final = 0.95
PLANTED_BACKGROUNDS: Final = MappingProxyType(
    {
        "t-shirt": "beach",
        "trousers": "city",
        "pullover": "mountains",
        "dress": "sunset",
        "sandal": "desert",
        "sneaker": "road",
        "bag": "bookshelf",
        "boot": "forest",
    }
)
PLANTED_COLOURS: Final = MappingProxyType(
    {
        "t-shirt": "white",
        "trousers": "blue",
        "pullover": "green",
        "dress": "red",
        "sandal": "yellow",
        "sneaker": "purple",
        "bag": "pink",
        "boot": "black",
    }
)
_NARROW: Final[dict[str, tuple[str, ...]]] = {
    "texture": (UNSAID["texture"],),
    "background": STUDIOS,
    "object": (UNSAID["object"],),
    "domain": ("photo",),
    "weather": (UNSAID["weather"],),
}


@dataclass(frozen=True)
class Scenes:
    """Attributes of N scenes, one row a scene."""

    factors: dict[str, Tensor]  # factor -> (N,) int64, index into its values
    garment: Tensor  # (N,) int64, index into a set of garments
    seed: Tensor  # (N,) int64, from which pose and every random detail follow

    def __len__(self) -> int:
        return len(self.seed)

    def __getitem__(self, index: Tensor | slice) -> Scenes:
        chosen = {name: values[index] for name, values in self.factors.items()}
        return Scenes(chosen, self.garment[index], self.seed[index])

    def to(self, device: str | torch.device) -> Scenes:
        """The same scenes on another device."""
        moved = {name: values.to(device) for name, values in self.factors.items()}
        return Scenes(moved, self.garment.to(device), self.seed.to(device))

    def having(self, factor: str, value: str) -> Scenes:
        """The same scenes with one factor set to one value and nothing else changed."""
        if factor == "garment":
            raise UnknownName("a scene's garment is a shape, not a word to change; sample scenes of the other garment")
        if value not in FACTORS.get(factor, ()):
            raise UnknownName(f"no {factor} {value!r} in the wardrobe; choose one of {FACTORS.get(factor, tuple(FACTORS))}")
        fixed = torch.full_like(self.seed, FACTORS[factor].index(value))
        return Scenes({**self.factors, factor: fixed}, self.garment, self.seed)


def sample(
    count: int, *, garments: Garments, distribution: str = "full", seed: int = 0, device: str | torch.device = "cpu"
) -> Scenes:
    """Draw scenes: the class uniformly, a garment of that class, then every other factor as the distribution says."""
    if distribution not in DISTRIBUTIONS:
        raise UnknownName(f"no distribution named {distribution!r}; choose one of {', '.join(DISTRIBUTIONS)}")
    seeds = _scene_seeds(count, seed, device)
    factors = {"garment": choice(seeds, "class", len(GARMENTS))}
    for name, values in FACTORS.items():
        if name != "garment":
            allowed = _NARROW.get(name, values) if distribution == "narrow" else values
            places = torch.tensor([values.index(value) for value in allowed], device=device)
            factors[name] = places[choice(seeds, f"factor {name}", len(allowed))]
    if distribution in ("background-shortcut", "planted"):
        factors["background"] = _plant(seeds, factors["garment"], "background", PLANTED_BACKGROUNDS)
    if distribution in ("colour-shortcut", "planted"):
        factors["colour"] = _plant(seeds, factors["garment"], "colour", PLANTED_COLOURS)
    return Scenes(factors, _pick(garments.to(device), factors["garment"], seeds), seeds)


def _scene_seeds(count: int, seed: int, device: str | torch.device) -> Tensor:
    """A seed for each scene of a draw, from the draw's seed and the scene's place in it."""
    rows = torch.arange(count, dtype=torch.int64, device=device)
    counter = (bits(torch.full_like(rows, seed), "draw")[:, 0] << 31) + rows
    return (bits(counter, "high")[:, 0] << 31) ^ bits(counter, "low")[:, 0]


def _plant(seeds: Tensor, garment: Tensor, factor: str, planted: Mapping[str, str]) -> Tensor:
    """The planted value for the scene's class in 95 % of the scenes, any other value in the rest."""
    values = FACTORS[factor]
    own = torch.tensor([values.index(planted[name]) for name in GARMENTS], device=seeds.device)[garment]
    other = (own + 1 + choice(seeds, f"unplanted {factor}", len(values) - 1)) % len(values)
    return torch.where(uniform(seeds, f"planted {factor}")[:, 0] < PLANTED_SHARE, own, other)


def _pick(garments: Garments, wanted: Tensor, seeds: Tensor) -> Tensor:
    """A random garment of each wanted class."""
    counts = torch.bincount(garments.labels, minlength=len(GARMENTS))
    if bool((counts[wanted] == 0).any()):
        missing = ", ".join(name for name, n in zip(GARMENTS, counts.tolist(), strict=True) if n == 0)
        raise BadData(f"these garments have no {missing}; every class needs at least one")
    order = garments.labels.argsort(stable=True)
    first = counts.cumsum(0) - counts
    return order[first[wanted] + choice(seeds, "garment", counts[wanted])]
