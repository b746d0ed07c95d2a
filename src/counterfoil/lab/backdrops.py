"""The sixteen backgrounds, by name: each draws its place for a batch of seeds, (N, 3, 64, 64)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil.lab import indoors, landscapes
from counterfoil.lab.canvas import SIZE
from counterfoil.lab.groups import Drawn, Painter, by_value
from counterfoil.lab.vocabulary import BACKGROUNDS

_PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "white studio": indoors.white_studio,
    "grey studio": indoors.grey_studio,
    "wooden floor": indoors.wooden_floor,
    "tiled floor": indoors.tiled_floor,
    "brick wall": indoors.brick_wall,
    "bookshelf": indoors.bookshelf,
    "grass": landscapes.grass,
    "beach": landscapes.beach,
    "desert": landscapes.desert,
    "forest": landscapes.forest,
    "mountains": landscapes.mountains,
    "night sky": landscapes.night_sky,
    "sunset": landscapes.sunset,
    "water": landscapes.water,
    "city": landscapes.city,
    "road": landscapes.road,
}


def backdrop(background: Tensor, seed: Tensor) -> Drawn:
    """What lies behind the garment, (N, 3, 64, 64)."""

    def painter(draw: Callable[[Tensor], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            torch.clamp(draw(seed[rows]), 0, 1, out=sheets)

        return paint

    return by_value(background, BACKGROUNDS, {name: painter(draw) for name, draw in _PLACES.items()}, shape=(3, SIZE, SIZE))
