"""The mediums a scene can be made in. A style turns one layer of colours into that medium.

Garment and backdrop are styled apart and put together afterwards, so nothing of the garment's colours leaks past its mask.
Every style keeps hue readable: pencils are coloured, the thermal camera mixes in the visible image, neon tubes glow in colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil_lab.drawing.canvas import (
    SIZE,
    apply_shade,
    apply_tone,
    between,
    cell,
    contrast,
    ease,
    grid,
    ink,
    lattice,
    luminance,
    mix,
    over,
    per_cell,
    saturate,
    smooth,
    spread,
    step,
    wrap,
)


@dataclass(frozen=True)
class Layers:
    """A scene before its medium."""

    backdrop: Tensor  # (N, 3, 64, 64) what lies behind the garment, with the second object in its place
    cloth: Tensor  # (N, 3, 64, 64) the garment's surface, over the whole canvas
    rim: Tensor  # (N, 64, 64) the garment's outermost pixel
    visible: Tensor  # (N, 64, 64) coverage of the garment that the second object leaves to be seen
    companion: Tensor  # (N, 64, 64) coverage of the second object
    seed: Tensor

    def companion_rim(self) -> Tensor:
        """The second object's outermost pixel, (N, 64, 64)."""
        return self.companion * spread(1 - self.companion)


def photo(layers: Layers) -> Tensor:
    """Grain and a darker border."""
    x, y = grid(layers.seed.device)
    picture = over(layers.backdrop, layers.cloth, layers.visible)
    corner = ((x - 31.5) ** 2 + (y - 31.5) ** 2) / 2000
    grain = lattice(layers.seed, "grain", SIZE, SIZE) - 0.5
    return apply_tone(picture, 1.02 - 0.12 * corner).add_(0.035 * grain.unsqueeze(1))


def sketch(layers: Layers) -> Tensor:
    """Coloured pencil on paper: hatching in the thing's own hue, graphite outlines."""
    x, y = grid(layers.seed.device)
    seed = layers.seed
    paper = apply_shade(ink(seed.device, 0.97, 0.955, 0.91), 0.98 + 0.04 * lattice(seed, "paper", SIZE, SIZE))
    wobble = 1.5 * smooth(seed, "hand", 6, 6)
    strokes = ((x - y) * (2 * math.pi / 3.6) + wobble).sin()
    other = ((x + 0.7 * y) * (2 * math.pi / 4.6) + wobble).sin()

    def draw(colours: Tensor, hatch: Tensor, press: float | Tensor) -> Tensor:
        dark = 1 - luminance(colours)
        weight = (press + 0.55 * dark + 0.16 * hatch).clamp(0, 0.96)
        return mix(paper, saturate(colours, 1.25), weight)

    behind = draw(layers.backdrop, other, 0.05 + 0.37 * layers.companion)
    edges = 0.65 * ease(contrast(luminance(layers.backdrop)), 0.10, 0.40)
    behind = over(behind, ink(seed.device, 0.28, 0.28, 0.32), torch.maximum(edges, 0.85 * layers.companion_rim()))
    front = draw(layers.cloth, strokes, 0.42)
    front = over(front, ink(seed.device, 0.20, 0.20, 0.24), 0.85 * layers.rim)
    return over(behind, front, layers.visible)


def painting(layers: Layers) -> Tensor:
    """Oil on canvas: short strokes that smear colour along their way, with ridges of paint."""
    seed = layers.seed
    x, y = grid(seed.device)
    turn = between(seed, "brush", 0.4, 1.1) + 0.5 * smooth(seed, "brush turn", 4, 4)
    cos, sin = turn.cos(), turn.sin()
    row, aside = wrap(y * cos - x * sin, 3.0)
    column, along = wrap(x * cos + y * sin + 7 * per_cell(seed, "stroke start", cell(row, 0)), 7.0)
    stroke = cell(row, column)
    smear = 0.36 * (3.5 - along) + 0.8 * (per_cell(seed, "smear", stroke) - 0.5)
    places = torch.stack((x + smear * cos, y + smear * sin), dim=1).mul_(2 / (SIZE - 1)).sub_(1)  # (N, 2, 64, 64)
    ridge = (aside * (2 / 3.0) - 1).abs()
    bristles = lattice(seed, "bristles", SIZE, SIZE)
    relief = 0.92 + 0.20 * per_cell(seed, "dab", stroke) - 0.16 * ridge**3 + 0.06 * bristles

    def draw(colours: Tensor) -> Tensor:
        smeared = F.grid_sample(colours, places.permute(0, 2, 3, 1), mode="bilinear", padding_mode="border", align_corners=True)
        return apply_tone(saturate(smeared, 1.3), relief)

    return over(draw(layers.backdrop), draw(layers.cloth), layers.visible)


def cartoon(layers: Layers) -> Tensor:
    """Flat tones, strong colours and bold black outlines."""

    def draw(colours: Tensor, lines: Tensor) -> Tensor:
        value = colours.amax(1).clamp(min=0.02)
        level, above = wrap(value, 0.25)
        flat = (level + step(above, 0.125, 0.12)) * 0.25
        drawn = saturate(apply_shade(colours, (0.3 * value + 0.7 * flat) / value).clamp(0, 1), 1.45)
        return over(drawn, ink(colours.device, 0.05, 0.04, 0.07), lines)

    edges = ease(contrast(luminance(layers.backdrop)), 0.16, 0.34) * 0.8
    behind = draw(layers.backdrop, torch.maximum(edges, layers.companion_rim()))
    return over(behind, draw(layers.cloth, layers.rim), layers.visible)


@cache
def _heat(device: torch.device) -> Tensor:
    """A thermal camera's palette from cold to hot, (3, 256)."""
    stops = torch.tensor(
        [(0.03, 0.01, 0.16), (0.32, 0.04, 0.52), (0.80, 0.18, 0.38), (0.99, 0.58, 0.10), (1.0, 0.98, 0.72)], device=device
    )
    place = torch.linspace(0, len(stops) - 1.0001, 256, device=device)
    low = place.long()
    return (stops[low] + (stops[low + 1] - stops[low]) * (place - low).unsqueeze(1)).T.contiguous()


def thermal(layers: Layers) -> Tensor:
    """A thermal camera's false colours, fused with the visible image as such cameras do; the garment is warm."""
    _, y = grid(layers.seed.device)
    palette = _heat(layers.seed.device)

    def draw(colours: Tensor, warmth: float | Tensor) -> Tensor:
        heat = 0.36 * warmth + (0.48 + 0.16 * warmth) * luminance(colours)
        tone = heat.clamp(0, 1).mul_(255).int().flatten()
        false = palette.index_select(1, tone).view(3, *heat.shape).transpose(0, 1)
        return over(false, saturate(colours, 1.5), 0.22 + 0.34 * warmth)

    behind = draw(layers.backdrop, 0.75 * layers.companion)
    front = draw(layers.cloth, 1.0)
    lines = 1.0 - 0.10 * step(wrap(y, 3.0)[1], 1.5, 0.5)
    return apply_tone(over(behind, front, layers.visible), lines)


def neon(layers: Layers) -> Tensor:
    """A sign at night: glowing tubes along every edge, dim colour between them."""
    seed = layers.seed

    def draw(colours: Tensor, tubes: Tensor, dim: Tensor) -> Tensor:
        peak = colours.amax(1, keepdim=True).clamp(min=0.05)
        glow = saturate(colours / peak * (0.35 + 0.65 * peak), 1.3)
        return apply_shade(colours, dim).add_(apply_tone(glow, tubes))

    edges = ease(contrast(luminance(layers.backdrop)), 0.08, 0.5) * (0.6 - 0.2 * layers.companion)
    behind = draw(layers.backdrop, edges + 0.5 * layers.companion_rim(), 0.26 + 0.26 * layers.companion)
    edges = ease(contrast(luminance(layers.cloth)), 0.05, 0.5)
    front = draw(layers.cloth, 0.45 * edges, torch.full_like(edges, 0.50))
    tube = mix(saturate(layers.cloth, 1.4), ink(seed.device, 1, 1, 1), 0.35)
    front = over(front, tube.clamp(min=0.38), layers.rim)
    return over(behind, front, layers.visible)


STYLES: dict[str, Callable[[Layers], Tensor]] = {
    "photo": photo,
    "sketch": sketch,
    "painting": painting,
    "cartoon": cartoon,
    "thermal": thermal,
    "neon": neon,
}
