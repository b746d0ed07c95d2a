"""What a garment is made of: how weave, grain, sheen and seams turn its colours into what is seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from counterfoil.lab.canvas import SIZE, ease, ink, mix, over, step, toned, wave, wrap
from counterfoil.lab.figures import Surface
from counterfoil.lab.groups import Drawn, Painter, by_value
from counterfoil.lab.randomness import between, smooth
from counterfoil.lab.vocabulary import COLOURS, MATERIALS

# Each colour's own tone and the second tone of its patterns: lighter, or darker where the colour itself is light.
_TONES = {
    "red": ((0.80, 0.09, 0.11), (0.98, 0.84, 0.80)),
    "orange": ((0.96, 0.47, 0.05), (1.00, 0.91, 0.76)),
    "yellow": ((0.97, 0.83, 0.13), (0.45, 0.36, 0.04)),
    "green": ((0.11, 0.54, 0.20), (0.80, 0.95, 0.74)),
    "blue": ((0.12, 0.29, 0.80), (0.78, 0.87, 1.00)),
    "purple": ((0.47, 0.17, 0.68), (0.89, 0.79, 0.97)),
    "pink": ((0.98, 0.52, 0.72), (0.55, 0.10, 0.33)),
    "brown": ((0.42, 0.25, 0.12), (0.86, 0.74, 0.58)),
    "black": ((0.11, 0.11, 0.12), (0.58, 0.58, 0.60)),
    "white": ((0.95, 0.95, 0.94), (0.46, 0.47, 0.50)),
}


@cache
def _tones(device: torch.device) -> Tensor:
    return torch.tensor([_TONES[name] for name in COLOURS], device=device)  # (colours, 2, 3)


def cloth(colour: Tensor, material: Tensor, pattern: Drawn, surface: Surface, seed: Tensor) -> Drawn:
    """The garment's surface over the whole canvas, (N, 3, 64, 64); the garment's coverage cuts it out."""

    def painter(draw: Callable[[Tensor, Surface, Tensor], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            base, second = _tones(seed.device)[colour[rows]][..., None, None].unbind(1)  # (N, 3, 1, 1) each
            colours = mix(base, second, pattern[rows])
            torch.clamp(draw(colours, surface[rows], seed[rows]), 0, 1, out=sheets)

        return paint

    return by_value(material, MATERIALS, {name: painter(draw) for name, draw in _SURFACES.items()}, shape=(3, SIZE, SIZE))


def _cotton(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Matt and even; only folds and soft light."""
    return toned(colours, 0.93 + 0.36 * surface.light + 0.30 * surface.folds)


def _denim(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Diagonal twill, faded in the middle, with a dashed seam inside the edge."""
    twill = wave(surface.across + surface.along, 3.6)
    fade = ease(surface.inner, 0.3, 1.0) * (0.16 + 0.10 * smooth(seed, "fade", 5, 5))
    worn = over(colours, ink(seed.device, 0.85, 0.88, 0.92), fade)
    woven = toned(worn, 0.84 + 0.14 * twill + 0.30 * surface.light + 0.25 * surface.folds)
    woven = over(woven, ink(seed.device, 1.0, 1.0, 1.0), (0.10 * twill).clamp_(min=0))
    seam = 1 - step((surface.inner - 0.22).abs(), 0.14, 0.14)
    dash = step(wave(surface.across - surface.along, 5.0), -0.2, 0.6)
    return over(woven, ink(seed.device, 0.96, 0.80, 0.42), seam * dash * 0.9)


def _leather(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Pebbled: round grains with dark creases between them, deep shade and broad glossy spots."""
    right = surface.across + 1.6 * smooth(seed, "grain x", 12, 12)
    down = surface.along + 1.6 * smooth(seed, "grain y", 12, 12)
    pebble = (wave(right, 4.6) + wave(0.5 * right + 0.87 * down, 4.6) + wave(0.5 * right - 0.87 * down, 4.6)) * 0.4
    tanned = toned(colours, 0.76 + 0.17 * pebble + 0.50 * surface.light + 0.25 * surface.folds)
    gloss = ease(0.7 * surface.light + 0.55 * smooth(seed, "gloss", 6, 6) + 0.30 * pebble, 0.15, 0.75)
    return over(tanned, ink(seed.device, 1.0, 0.98, 0.94), gloss * 0.62)


def _silk(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Wide, flowing diagonal sheen with soft highlights."""
    drift = 7.0 * smooth(seed, "drift", 4, 4) + between(seed, "sheen", 0, 20)
    sheen = wave(0.75 * surface.across + 0.65 * surface.along + drift, 21.0)
    draped = toned(colours, 0.84 + 0.24 * sheen + 0.22 * surface.light + 0.15 * surface.folds)
    return over(draped, ink(seed.device, 1.0, 1.0, 1.0), 0.42 * ease(sheen, 0.2, 1.0))


def _wool(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Columns of knitted V stitches in relief."""
    _, place = wrap(surface.across, 6.0)
    side = (place * (1 / 6.0) - 0.5).abs()
    stitch = 0.5 + 0.5 * wave(surface.along - 5.0 * side, 4.2)
    relief = (0.30 + 0.70 * stitch) * (0.45 + 0.55 * ease(0.5 - side, 0.0, 0.22))
    knitted = toned(colours, 0.58 + 0.46 * relief + 0.28 * surface.light + 0.15 * surface.folds)
    return over(knitted, ink(seed.device, 1.0, 1.0, 1.0), 0.15 * relief)


def _metal(colours: Tensor, surface: Surface, seed: Tensor) -> Tensor:
    """Polished: reflections that swell to a hard white edge and fall back to dark, and a bright bevel."""
    bend = 6.0 * smooth(seed, "bend", 4, 4) + between(seed, "reflection", 0, 16)
    _, place = wrap(surface.along - 0.5 * surface.across + bend + 7.0 * surface.light, 16.0)
    swell = place * (1 / 16.0)
    cut = ease(16.0 - place, 0.0, 1.2)  # softens the fall over about a pixel
    polished = toned(colours, 0.42 + (0.74 * swell * cut) + 0.22 * surface.light)
    shine = ease(swell, 0.60, 0.92) * cut + 0.7 * ease(surface.light, 0.40, 0.8)
    return over(polished, ink(seed.device, 1.0, 1.0, 1.0), (0.92 * shine).clamp_(0, 0.92))


_SURFACES: dict[str, Callable[[Tensor, Surface, Tensor], Tensor]] = {
    "cotton": _cotton,
    "denim": _denim,
    "leather": _leather,
    "silk": _silk,
    "wool": _wool,
    "metal": _metal,
}
