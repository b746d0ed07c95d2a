"""Scenes of the wardrobe world: sampled from a distribution of attributes and rendered, each picture from its own row alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil.lab.canvas import SIZE
from counterfoil.lab.composition import composed
from counterfoil.lab.garments import Garments
from counterfoil.lab.groups import put
from counterfoil.lab.randomness import bits, choice, uniform
from counterfoil.lab.vocabulary import FACTORS, GARMENTS, STUDIOS, UNSAID

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
_CHUNK: Final = 256  # scenes that a CPU draws at a time: their layers stay near the processor
_LARGE_CHUNK: Final = 16_384  # scenes that a GPU draws at a time: launching its kernels takes as long for a few
_SCENE_BYTES: Final = 2**20  # at most, of layers and what lies between them


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
        factors["background"] = _planted(seeds, factors["garment"], "background", PLANTED_BACKGROUNDS)
    if distribution in ("colour-shortcut", "planted"):
        factors["colour"] = _planted(seeds, factors["garment"], "colour", PLANTED_COLOURS)
    return Scenes(factors, _pick(garments.to(device), factors["garment"], seeds), seeds)


def _scene_seeds(count: int, seed: int, device: str | torch.device) -> Tensor:
    """A seed for each scene of a draw, from the draw's seed and the scene's place in it."""
    rows = torch.arange(count, dtype=torch.int64, device=device)
    counter = (bits(torch.full_like(rows, seed), "draw")[:, 0] << 31) + rows
    return (bits(counter, "high")[:, 0] << 31) ^ bits(counter, "low")[:, 0]


def _planted(seeds: Tensor, garment: Tensor, factor: str, planted: Mapping[str, str]) -> Tensor:
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


def render(scenes: Scenes, garments: Garments) -> tuple[Tensor, Tensor]:
    """Pictures (N, 3, 64, 64) in [0, 1] and masks (N, 1, 64, 64), True where the garment shows.

    Colour, material and texture change nothing outside the mask.
    """
    images = torch.empty((len(scenes), 3, SIZE, SIZE), device=scenes.seed.device)
    masks = torch.empty((len(scenes), 1, SIZE, SIZE), dtype=torch.bool, device=scenes.seed.device)
    order = scenes.factors["background"].argsort(stable=True)  # backgrounds cost most, and those of a kind are drawn together
    for rows in order.split(_chunk(scenes.seed.device)):
        _render(scenes[rows], garments, rows, images, masks)
    return images, masks


@torch.no_grad()
def _render(scenes: Scenes, garments: Garments, places: Tensor, images: Tensor, masks: Tensor) -> None:
    """Draw scenes into these places of a batch."""
    # Half precision would shift patterns by pixels.
    with torch.autocast(scenes.seed.device.type, enabled=False):
        for rows, pictures, shown in composed(scenes.factors, garments.pixels[scenes.garment], scenes.seed):
            put(images, places[rows], pictures)
            put(masks, places[rows], shown)


def _chunk(device: torch.device) -> int:
    """How many scenes to draw at a time; on a GPU, as many as half of its free memory has room for."""
    if device.type != "cuda":
        return _CHUNK
    return max(_CHUNK, min(_LARGE_CHUNK, torch.cuda.mem_get_info(device)[0] // 2 // _SCENE_BYTES))
