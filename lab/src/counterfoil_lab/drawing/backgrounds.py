"""The sixteen backgrounds: studios, floors and walls, and places under the sky."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterfoil_lab.drawing.canvas import (
    SIZE,
    Drawn,
    Painter,
    apply_shade,
    apply_tone,
    between,
    by_value,
    cell,
    ease,
    grid,
    ink,
    lattice,
    line,
    mix,
    odd,
    over,
    per_cell,
    smooth,
    step,
    uniform,
    wrap,
)
from counterfoil_lab.world import BACKGROUNDS


def white_studio(seed: Tensor) -> Tensor:
    """A white sweep: wall and floor meet in a soft curve."""
    x, y = grid(seed.device)
    floor = ease(y - between(seed, "sweep", 44, 52), -6, 8)
    lit = 0.965 - 0.0012 * (x - 22).abs() - 0.05 * floor + 0.01 * smooth(seed, "wall", 4, 4)
    return apply_shade(ink(seed.device, 1.0, 0.995, 0.985), lit)


def grey_studio(seed: Tensor) -> Tensor:
    """A grey paper backdrop with a pool of light."""
    x, y = grid(seed.device)
    away = ((x - between(seed, "pool", 24, 40)) ** 2 + (y - 28) ** 2).sqrt() / 46
    floor = ease(y - between(seed, "sweep", 46, 52), -3, 4)
    lit = 0.60 - 0.26 * away - 0.05 * floor + 0.02 * smooth(seed, "wall", 5, 5)
    return apply_shade(ink(seed.device, 0.98, 1.0, 1.03), lit)


def wooden_floor(seed: Tensor) -> Tensor:
    """Long planks with grain, gaps and butt joints."""
    x, y = grid(seed.device)
    plank, place = wrap(y + between(seed, "planks", 0, 10), 10.5)
    tone = per_cell(seed, "plank", cell(plank, 0))
    _, joint = wrap(x + 64 * per_cell(seed, "joint", cell(plank, 1)), 46)
    gap = torch.maximum(ease(place, 1.4, 0.2), ease(joint, 1.4, 0.2))
    grain = 0.6 * smooth(seed, "grain", 40, 5) + 0.4 * smooth(seed, "fibre", 60, 12)
    wood = mix(ink(seed.device, 0.47, 0.28, 0.13), ink(seed.device, 0.70, 0.46, 0.25), tone)
    return apply_tone(wood, (1.0 + 0.16 * grain) * (1 - 0.62 * gap))


def tiled_floor(seed: Tensor) -> Tensor:
    """Glazed white and teal tiles with grout."""
    x, y = grid(seed.device)
    column, right = wrap(x + between(seed, "tiles x", 0, 12), 12)
    row, down = wrap(y + between(seed, "tiles y", 0, 12), 12)
    inside = torch.minimum(6 - (right - 6).abs(), 6 - (down - 6).abs())
    tone = 0.92 + 0.12 * per_cell(seed, "tile", cell(row, column))
    glaze = mix(ink(seed.device, 0.90, 0.93, 0.92), ink(seed.device, 0.24, 0.55, 0.58), odd(row + column))
    bevel = 0.12 * (1 - ease(torch.minimum(right, down), 1.0, 3.0))
    return mix(ink(seed.device, 0.52, 0.52, 0.50), apply_tone(glaze, tone + bevel), ease(inside, 0.3, 1.3))


def brick_wall(seed: Tensor) -> Tensor:
    """Red bricks in running bond with light mortar."""
    x, y = grid(seed.device)
    row, down = wrap(y + between(seed, "course", 0, 8), 8)
    column, right = wrap(x + 8 * odd(row) + between(seed, "bond", 0, 16), 16)
    inside = torch.minimum(8 - (right - 8).abs(), 4 - (down - 4).abs())
    tone = 0.74 + 0.42 * per_cell(seed, "brick", cell(row, column)) + 0.10 * (lattice(seed, "pores", 64, 64) - 0.5)
    rounded = 0.86 + 0.16 * ease(down, 6.5, 1.5)
    bricks = apply_shade(ink(seed.device, 0.63, 0.25, 0.19), tone * rounded)
    return mix(ink(seed.device, 0.74, 0.69, 0.63), bricks, ease(inside, 0.4, 1.3))


def bookshelf(seed: Tensor) -> Tensor:
    """Rows of coloured spines on dark boards."""
    x, y = grid(seed.device)
    row, height = wrap(y + between(seed, "boards", 0, 12), 21)
    column, right = wrap(x + between(seed, "books", 0, 5), 5)
    book = cell(row, column)
    top = 3 + 5 * per_cell(seed, "top", book)
    hue = per_cell(seed, "hue", book) * 2 * math.pi
    spine = 0.44 + 0.24 * torch.stack(((hue).cos(), (hue + 2.1).cos(), (hue + 4.2).cos()), dim=1)
    rounded = 0.55 + 0.5 * ease(2.5 - (right - 2.5).abs(), 0.0, 1.6)
    band = step(1.2 - (height - top - 4).abs()) * 0.5
    books = over(apply_tone(spine, rounded), ink(seed.device, 0.95, 0.86, 0.55), band)
    standing = step(height, top + 0.5)
    back = apply_shade(ink(seed.device, 0.16, 0.10, 0.07), torch.ones_like(height))
    board = apply_shade(ink(seed.device, 0.42, 0.26, 0.14), 1.0 + 0.25 * smooth(seed, "board", 40, 6))
    return over(over(back, books, standing), board, step(height, 18.3))


def _disc(seed: Tensor, purpose: str, height: float, radius: float) -> tuple[Tensor, Tensor]:
    """A sun or moon near the left or right border: its distance field and which side it is on."""
    x, y = grid(seed.device)
    left = between(seed, purpose, 6, 12)
    centre = torch.where(uniform(seed, f"{purpose} side")[:, :, None] < 0.5, left, 63 - left)
    return ((x - centre) ** 2 + (y - height) ** 2).sqrt() - radius, centre


def grass(seed: Tensor) -> Tensor:
    """A lawn seen from above, blade on blade."""
    blades = 0.6 * smooth(seed, "blades", 14, 56) + 0.5 * smooth(seed, "more blades", 24, 60)
    patch = smooth(seed, "patch", 5, 5)
    green = mix(ink(seed.device, 0.20, 0.42, 0.10), ink(seed.device, 0.42, 0.66, 0.18), 0.5 + 0.3 * patch)
    return over(apply_tone(green, 0.85 + 0.55 * blades), ink(seed.device, 0.75, 0.86, 0.35), 0.35 * ease(blades, 0.35, 0.9))


def beach(seed: Tensor) -> Tensor:
    """Sky, sea, a line of foam and sand."""
    _, y = grid(seed.device)
    sky = mix(ink(seed.device, 0.46, 0.74, 0.95), ink(seed.device, 0.82, 0.93, 0.98), (y / 20).clamp(0, 1))
    glitter = ease(smooth(seed, "glitter", 40, 9), 0.3, 0.9)
    sea = mix(ink(seed.device, 0.05, 0.36, 0.62), ink(seed.device, 0.20, 0.66, 0.74), ((y - 17) / 20).clamp(0, 1))
    sea = mix(sea, ink(seed.device, 0.85, 0.97, 0.98), 0.5 * glitter)
    shore = between(seed, "shore", 36, 41) + 2.5 * line(seed, "foam", 6)
    grains = (lattice(seed, "sand", 64, 64) - 0.5) + 0.6 * smooth(seed, "dune", 12, 5)
    sand = apply_shade(ink(seed.device, 0.91, 0.80, 0.58), 0.98 + 0.09 * grains - 0.10 * ease(shore + 5 - y, 0, 5))
    picture = over(mix(sky, sea, step(y, 17.0)), sand, step(y, shore))
    return over(picture, ink(seed.device, 0.99, 0.99, 0.97), 0.9 * ease(2.2 - (y - shore).abs(), 0.0, 1.6))


def desert(seed: Tensor) -> Tensor:
    """Orange dunes, lit crest and shaded slope, under a pale sky."""
    x, y = grid(seed.device)
    picture = mix(ink(seed.device, 0.55, 0.74, 0.86), ink(seed.device, 0.97, 0.88, 0.68), (y / 24).clamp(0, 1))
    for number, (level, tall) in enumerate(((22, 5.0), (33, 6.5), (47, 7.0))):
        crest = level + tall * line(seed, f"dune {number}", 4)
        rising = (x * 0.09 + between(seed, f"wind {number}", 0, 6)).sin()
        below = y - crest
        ripple = 0.06 * (below * 1.7 + 2.5 * line(seed, f"ripple {number}", 5)).sin()
        slope = mix(ink(seed.device, 0.72, 0.40, 0.18), ink(seed.device, 0.95, 0.66, 0.34), step(rising, 0.0, 0.9))
        lit = 0.86 + 0.05 * number + ripple + 0.18 * ease(4 - below, 0, 4)
        picture = over(picture, apply_tone(slope, lit), step(below))
    return picture


def forest(seed: Tensor) -> Tensor:
    """Trunks in front of dim green leaves, ferns below."""
    x, y = grid(seed.device)
    leaves = 0.6 * smooth(seed, "leaves", 22, 22) + 0.5 * smooth(seed, "crowns", 8, 8)
    picture = mix(ink(seed.device, 0.05, 0.17, 0.09), ink(seed.device, 0.36, 0.58, 0.22), ease(leaves, -0.6, 0.8))
    picture = over(picture, ink(seed.device, 0.78, 0.90, 0.55), 0.5 * ease(leaves - y / 60, 0.15, 0.7))
    for number, (pitch, wide, dim) in enumerate(((11.0, 1.5, 0.75), (19.0, 2.7, 1.1))):
        column, right = wrap(x + between(seed, f"trunks {number}", 1, 19) + 0.8 * smooth(seed, f"crook {number}", 4, 3), pitch)
        off = right - pitch / 2 + 3 * (per_cell(seed, f"trunk {number}", cell(0, column)) - 0.5)
        bark = 0.85 + 0.35 * smooth(seed, f"bark {number}", 12, 60) - 0.25 * off / wide
        trunk = apply_shade(ink(seed.device, 0.36, 0.24, 0.15), bark * dim)
        picture = over(picture, trunk, step(wide - off.abs()))
    floor = between(seed, "ferns", 52, 56) + 3 * line(seed, "fern line", 14)
    ferns = mix(ink(seed.device, 0.10, 0.26, 0.08), ink(seed.device, 0.38, 0.52, 0.16), 0.5 + smooth(seed, "fern", 30, 50))
    return over(picture, ferns, step(y, floor, 3.0))


def mountains(seed: Tensor) -> Tensor:
    """Two jagged ranges with snow on top and a green foot."""
    x, y = grid(seed.device)
    picture = mix(ink(seed.device, 0.38, 0.62, 0.90), ink(seed.device, 0.83, 0.91, 0.97), (y / 36).clamp(0, 1))
    for number, (level, steep, rock) in enumerate(((15.0, 9.0, (0.50, 0.56, 0.68)), (27.0, 11.0, (0.35, 0.37, 0.44)))):
        pitch = 26.0 + 8 * number
        _, right = wrap(x + between(seed, f"range {number}", 0, 30), pitch)
        peak = (right - pitch / 2).abs() / pitch * 2  # 0 at a summit, 1 in a valley
        crest = level + steep * (2 * peak - 0.6) + 2.2 * line(seed, f"crags {number}", 18)
        below = y - crest
        side = step(right, pitch / 2, 2.0) * 0.34
        stone = apply_shade(ink(seed.device, *rock), 1.12 - side + 0.12 * smooth(seed, f"stone {number}", 30, 30))
        snow = apply_shade(ink(seed.device, 0.97, 0.98, 1.0), 1.0 - 0.6 * side)
        capped = over(stone, snow, step(6.0 + 2.5 * smooth(seed, f"snow line {number}", 4, 30) - below, 0.0, 1.5))
        picture = over(picture, capped, step(below))
    foot = between(seed, "foot", 47, 51) + 1.5 * line(seed, "foot line", 7)
    meadow = apply_shade(ink(seed.device, 0.30, 0.45, 0.22), 1.0 + 0.25 * smooth(seed, "meadow", 40, 30))
    return over(picture, meadow, step(y, foot))


def night_sky(seed: Tensor) -> Tensor:
    """Stars and a moon over black hills."""
    x, y = grid(seed.device)
    haze = ease(smooth(seed, "haze", 5, 4), -0.2, 0.9)
    picture = mix(ink(seed.device, 0.03, 0.04, 0.15), ink(seed.device, 0.13, 0.15, 0.36), (y / 58).clamp(0, 1))
    picture = over(picture, ink(seed.device, 0.26, 0.18, 0.46), 0.35 * haze)
    row, down = wrap(y, 7)
    column, right = wrap(x, 7)
    star = cell(row, column)
    off_x = right - 1 - 5 * per_cell(seed, "star x", star)
    off_y = down - 1 - 5 * per_cell(seed, "star y", star)
    size = 1.25 * per_cell(seed, "star", star) ** 1.5
    stars = step(size - (off_x**2 + off_y**2).sqrt_(), 0.0, 0.9)
    picture = over(picture, ink(seed.device, 1.0, 0.98, 0.86), stars)
    moon, _ = _disc(seed, "moon", 9.0, 5.0)
    picture = over(picture, ink(seed.device, 0.55, 0.55, 0.75), 0.35 * ease(-moon, -7, 0))
    craters = 1.0 - 0.16 * ease(smooth(seed, "craters", 20, 20), 0.2, 0.6)
    picture = over(picture, apply_shade(ink(seed.device, 0.98, 0.96, 0.84), craters), step(-moon))
    hills = between(seed, "hills", 54, 58) + 3 * line(seed, "hill line", 5)
    return over(picture, ink(seed.device, 0.02, 0.03, 0.06), step(y, hills))


def sunset(seed: Tensor) -> Tensor:
    """A low sun, glowing bands of cloud and its path on a dark sea."""
    x, y = grid(seed.device)
    high = mix(ink(seed.device, 0.28, 0.16, 0.42), ink(seed.device, 0.88, 0.30, 0.32), (y / 26).clamp(0, 1))
    picture = mix(high, ink(seed.device, 1.0, 0.76, 0.32), ((y - 22) / 22).clamp(0, 1))
    clouds = ease(smooth(seed, "clouds", 14, 4), 0.1, 0.7)
    picture = over(picture, ink(seed.device, 0.46, 0.16, 0.38), 0.55 * clouds * (1 - y / 80))
    sun, centre = _disc(seed, "sun", 42.0, 7.0)
    picture = over(picture, ink(seed.device, 1.0, 0.88, 0.50), 0.5 * ease(-sun, -12, 0))
    picture = over(picture, ink(seed.device, 1.0, 0.96, 0.72), step(-sun))
    sea = apply_shade(ink(seed.device, 0.20, 0.10, 0.26), 1.0 + 0.5 * smooth(seed, "swell", 30, 5))
    path = ease(6 + 0.2 * (y - 46) - (x - centre).abs(), 0, 3) * step(smooth(seed, "sparkle", 34, 10), -0.1, 0.4)
    sea = over(sea, ink(seed.device, 1.0, 0.66, 0.34), 0.85 * path)
    return over(picture, sea, step(y, 45.5))


def water(seed: Tensor) -> Tensor:
    """Clear pool water with a net of light."""
    x, y = grid(seed.device)
    right = x + 5 * smooth(seed, "sway x", 6, 6) + between(seed, "drift x", 0, 20)
    down = y + 5 * smooth(seed, "sway y", 6, 6) + between(seed, "drift y", 0, 20)
    first = ((right + 0.5 * down) * 0.42).sin() + (down * 0.55 - 0.25 * right).sin()
    net = 1 - ease(first.abs(), 0.0, 0.55)
    deep = mix(ink(seed.device, 0.02, 0.42, 0.66), ink(seed.device, 0.12, 0.66, 0.80), 0.5 + 0.25 * first)
    return over(deep, ink(seed.device, 0.78, 0.98, 0.99), 0.75 * net)


def city(seed: Tensor) -> Tensor:
    """Two rows of towers with lit windows against a hazy evening."""
    x, y = grid(seed.device)
    picture = mix(ink(seed.device, 0.42, 0.50, 0.68), ink(seed.device, 0.95, 0.80, 0.66), (y / 50).clamp(0, 1))
    for number, (pitch, top, wall) in enumerate(((9.0, 6.0, (0.42, 0.46, 0.58)), (13.0, 16.0, (0.17, 0.19, 0.28)))):
        column, inside = wrap(x + between(seed, f"block {number}", 0, 13), pitch)
        roof = (top + 20 * per_cell(seed, f"roof {number}", cell(0, column))).floor_()
        tower = step(y, roof) * step(inside, 1.0 - number)
        floor, up = wrap(y - roof, 4)
        bay, aside = wrap(inside, 3)
        window = step(aside, 1.2, 0.6) * step(up, 1.9, 0.6) * step(inside, 2.0) * step(floor, 0.5)
        lit = step(per_cell(seed, f"lit {number}", cell(floor.clamp(0), bay + 5 * column)), 0.45, 0.1)
        walls = apply_shade(ink(seed.device, *wall), 1.0 + 0.1 * inside / pitch)
        facade = over(walls, ink(seed.device, 1.0, 0.86, 0.45), window * lit * (0.55 + 0.35 * number))
        picture = over(picture, facade, tower)
    street = apply_shade(ink(seed.device, 0.25, 0.25, 0.29), 1.0 + 0.15 * smooth(seed, "street", 20, 8))
    return over(picture, street, step(y, 57.0))


def road(seed: Tensor) -> Tensor:
    """An asphalt road running to the horizon between dry verges."""
    x, y = grid(seed.device)
    vanishing = between(seed, "vanishing", 27, 37)
    depth = ((y - 13) / 50).clamp(min=0.0)
    off = (x - vanishing) / (depth * 34 + 1)  # ±1 at the road's edges
    sky = mix(ink(seed.device, 0.50, 0.68, 0.86), ink(seed.device, 0.90, 0.93, 0.94), (y / 14).clamp(0, 1))
    verge = apply_shade(ink(seed.device, 0.62, 0.58, 0.34), 1.0 + 0.3 * smooth(seed, "verge", 40, 30))
    asphalt = apply_shade(ink(seed.device, 0.33, 0.34, 0.36), 0.92 + 0.18 * lattice(seed, "asphalt", 64, 64))
    ground = over(verge, asphalt, step(1.0 - off.abs(), 0.0, 0.06))
    ground = over(ground, ink(seed.device, 0.95, 0.95, 0.92), step(0.05 - (off.abs() - 0.88).abs(), 0.0, 0.05))
    _, dash = wrap(6 / (depth + 0.12) + between(seed, "dashes", 0, 4), 4)
    dashes = step(dash, 2.0, 0.4)
    ground = over(ground, ink(seed.device, 0.98, 0.80, 0.22), dashes * step(0.07 - off.abs(), 0.0, 0.05))
    return mix(sky, ground, step(y, 13.0))


_PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "white studio": white_studio,
    "grey studio": grey_studio,
    "wooden floor": wooden_floor,
    "tiled floor": tiled_floor,
    "brick wall": brick_wall,
    "bookshelf": bookshelf,
    "grass": grass,
    "beach": beach,
    "desert": desert,
    "forest": forest,
    "mountains": mountains,
    "night sky": night_sky,
    "sunset": sunset,
    "water": water,
    "city": city,
    "road": road,
}


def backdrop(background: Tensor, seed: Tensor) -> Drawn:
    """Return what lies behind the garment, (N, 3, 64, 64)."""

    def painter(draw: Callable[[Tensor], Tensor]) -> Painter:
        def paint(rows: Tensor, sheets: Tensor) -> None:
            torch.clamp(draw(seed[rows]), 0, 1, out=sheets)

        return paint

    return by_value(background, BACKGROUNDS, {name: painter(draw) for name, draw in _PLACES.items()}, shape=(3, SIZE, SIZE))
