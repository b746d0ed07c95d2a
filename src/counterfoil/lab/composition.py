"""A batch of scenes put together from back to front: backdrop, shadows, garment, second object, medium, weather."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from counterfoil.lab.backdrops import backdrop
from counterfoil.lab.canvas import SIZE, toned
from counterfoil.lab.domains import STYLES, Layers
from counterfoil.lab.figures import Figure, pose
from counterfoil.lab.groups import Drawn, Painter, by_value, grouped
from counterfoil.lab.materials import cloth
from counterfoil.lab.objects import TOP, companion
from counterfoil.lab.textures import pattern
from counterfoil.lab.vocabulary import DOMAINS, WEATHERS
from counterfoil.lab.weather import SKIES

_SOLID, _VISIBLE = 3, 4  # what is kept of a scene beside its three colours


def composed(factors: Mapping[str, Tensor], pixels: Tensor, seed: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows of a batch with their pictures (n, 3, 64, 64) and masks (n, 1, 64, 64), some at a time; every row comes once."""
    scenes = _in_style(factors, *_dressed(factors, pixels, seed), seed)
    for name, rows in grouped(factors["weather"], WEATHERS):
        scene = scenes[rows]
        picture = SKIES[name](scene[:, :3], scene[:, _SOLID], seed[rows])
        yield rows, picture.clamp_(0, 1), scene[:, _VISIBLE:] > 0


def _dressed(factors: Mapping[str, Tensor], pixels: Tensor, seed: Tensor) -> tuple[Figure, Drawn]:
    """Garments in their pose, and their cloth."""
    figure, surface = pose(pixels, seed)
    return figure, cloth(factors["colour"], factors["material"], pattern(factors["texture"], surface, seed), surface, seed)


def _in_style(factors: Mapping[str, Tensor], figure: Figure, surface: Drawn, seed: Tensor) -> Drawn:
    """Scenes in their medium: colours, what weather has to go around, and the garment's visible part, (N, 5, 64, 64)."""
    places = backdrop(factors["background"], seed)
    things = companion(factors["object"], seed)

    def painter(style: Callable[[Layers], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            body = figure[rows]
            thing, hidden, cast = things[rows].split((3, 1, 1), dim=1)
            behind = toned(places[rows], 1 - 0.45 * body.shadow)
            behind[:, :, TOP:].mul_(1 - 0.45 * cast).lerp_(thing, hidden)
            beside = torch.zeros_like(body.coverage)
            beside[:, TOP:] = hidden[:, 0]
            visible = torch.mul(body.coverage, 1 - beside, out=sheets[:, _VISIBLE])
            torch.maximum(body.coverage, beside, out=sheets[:, _SOLID])
            layers = Layers(behind, surface[rows], rim=body.rim, visible=visible, companion=beside, seed=seed[rows])
            torch.clamp(style(layers), 0, 1, out=sheets[:, :3])

        return paint

    return by_value(factors["domain"], DOMAINS, {name: painter(style) for name, style in STYLES.items()}, shape=(5, SIZE, SIZE))
