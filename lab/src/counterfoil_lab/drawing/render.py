"""Scenes composed back to front: background, shadows, garment, second object, medium, weather."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from counterfoil_lab.drawing.backgrounds import backdrop
from counterfoil_lab.drawing.canvas import SIZE, Drawn, Painter, apply_tone, by_value, group, put
from counterfoil_lab.drawing.garment import Figure, cloth, pattern, pose
from counterfoil_lab.drawing.props import SKIES, TOP, companion
from counterfoil_lab.drawing.styles import STYLES, Layers
from counterfoil_lab.world import DOMAINS, WEATHERS, Garments, Scenes

_SOLID, _VISIBLE = 3, 4  # what is kept of a scene next to its three colours


def compose_rows(factors: Mapping[str, Tensor], pixels: Tensor, seed: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows of a batch with their images (n, 3, 64, 64) and masks (n, 1, 64, 64), some at a time; every row comes once."""
    scenes = _in_style(factors, *_dress(factors, pixels, seed), seed)
    for name, rows in group(factors["weather"], WEATHERS):
        scene = scenes[rows]
        picture = SKIES[name](scene[:, :3], scene[:, _SOLID], seed[rows])
        yield rows, picture.clamp_(0, 1), scene[:, _VISIBLE:] > 0


def _dress(factors: Mapping[str, Tensor], pixels: Tensor, seed: Tensor) -> tuple[Figure, Drawn]:
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
            behind = apply_tone(places[rows], 1 - 0.45 * body.shadow)
            behind[:, :, TOP:].mul_(1 - 0.45 * cast).lerp_(thing, hidden)
            beside = torch.zeros_like(body.coverage)
            beside[:, TOP:] = hidden[:, 0]
            visible = torch.mul(body.coverage, 1 - beside, out=sheets[:, _VISIBLE])
            torch.maximum(body.coverage, beside, out=sheets[:, _SOLID])
            layers = Layers(behind, surface[rows], rim=body.rim, visible=visible, companion=beside, seed=seed[rows])
            torch.clamp(style(layers), 0, 1, out=sheets[:, :3])

        return paint

    return by_value(factors["domain"], DOMAINS, {name: painter(style) for name, style in STYLES.items()}, shape=(5, SIZE, SIZE))


_CHUNK: Final = 256  # scenes that a CPU draws at a time: their layers stay near the processor
_LARGE_CHUNK: Final = 16_384  # scenes that a GPU draws at a time: launching its kernels takes as long for a few
_SCENE_BYTES: Final = 2**20  # at most, of layers and what lies between them


def render(scenes: Scenes, garments: Garments) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 64, 64) in [0, 1] and masks (N, 1, 64, 64), True where the garment shows.

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
        for rows, pictures, shown in compose_rows(scenes.factors, garments.pixels[scenes.garment], scenes.seed):
            put(images, places[rows], pictures)
            put(masks, places[rows], shown)


def _chunk(device: torch.device) -> int:
    """Measure how many scenes to draw at a time; on a GPU, as many as half of its free memory has room for."""
    if device.type != "cuda":
        return _CHUNK
    return max(_CHUNK, min(_LARGE_CHUNK, torch.cuda.mem_get_info(device)[0] // 2 // _SCENE_BYTES))
