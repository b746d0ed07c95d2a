"""Backgrounds under a roof: studios, floors, a wall and a bookshelf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from counterfoil.lab.canvas import cell, ease, grid, ink, mix, odd, over, per_cell, shaded, step, toned, wrap
from counterfoil.lab.randomness import between, lattice, smooth


def white_studio(seed: Tensor) -> Tensor:
    """A white sweep: wall and floor meet in a soft curve."""
    x, y = grid(seed.device)
    floor = ease(y - between(seed, "sweep", 44, 52), -6, 8)
    lit = 0.965 - 0.0012 * (x - 22).abs() - 0.05 * floor + 0.01 * smooth(seed, "wall", 4, 4)
    return shaded(ink(seed.device, 1.0, 0.995, 0.985), lit)


def grey_studio(seed: Tensor) -> Tensor:
    """A grey paper backdrop with a pool of light."""
    x, y = grid(seed.device)
    away = ((x - between(seed, "pool", 24, 40)) ** 2 + (y - 28) ** 2).sqrt() / 46
    floor = ease(y - between(seed, "sweep", 46, 52), -3, 4)
    lit = 0.60 - 0.26 * away - 0.05 * floor + 0.02 * smooth(seed, "wall", 5, 5)
    return shaded(ink(seed.device, 0.98, 1.0, 1.03), lit)


def wooden_floor(seed: Tensor) -> Tensor:
    """Long planks with grain, gaps and butt joints."""
    x, y = grid(seed.device)
    plank, place = wrap(y + between(seed, "planks", 0, 10), 10.5)
    tone = per_cell(seed, "plank", cell(plank, 0))
    _, joint = wrap(x + 64 * per_cell(seed, "joint", cell(plank, 1)), 46)
    gap = torch.maximum(ease(place, 1.4, 0.2), ease(joint, 1.4, 0.2))
    grain = 0.6 * smooth(seed, "grain", 40, 5) + 0.4 * smooth(seed, "fibre", 60, 12)
    wood = mix(ink(seed.device, 0.47, 0.28, 0.13), ink(seed.device, 0.70, 0.46, 0.25), tone)
    return toned(wood, (1.0 + 0.16 * grain) * (1 - 0.62 * gap))


def tiled_floor(seed: Tensor) -> Tensor:
    """Glazed white and teal tiles with grout."""
    x, y = grid(seed.device)
    column, right = wrap(x + between(seed, "tiles x", 0, 12), 12)
    row, down = wrap(y + between(seed, "tiles y", 0, 12), 12)
    inside = torch.minimum(6 - (right - 6).abs(), 6 - (down - 6).abs())
    tone = 0.92 + 0.12 * per_cell(seed, "tile", cell(row, column))
    glaze = mix(ink(seed.device, 0.90, 0.93, 0.92), ink(seed.device, 0.24, 0.55, 0.58), odd(row + column))
    bevel = 0.12 * (1 - ease(torch.minimum(right, down), 1.0, 3.0))
    return mix(ink(seed.device, 0.52, 0.52, 0.50), toned(glaze, tone + bevel), ease(inside, 0.3, 1.3))


def brick_wall(seed: Tensor) -> Tensor:
    """Red bricks in running bond with light mortar."""
    x, y = grid(seed.device)
    row, down = wrap(y + between(seed, "course", 0, 8), 8)
    column, right = wrap(x + 8 * odd(row) + between(seed, "bond", 0, 16), 16)
    inside = torch.minimum(8 - (right - 8).abs(), 4 - (down - 4).abs())
    tone = 0.74 + 0.42 * per_cell(seed, "brick", cell(row, column)) + 0.10 * (lattice(seed, "pores", 64, 64) - 0.5)
    rounded = 0.86 + 0.16 * ease(down, 6.5, 1.5)
    bricks = shaded(ink(seed.device, 0.63, 0.25, 0.19), tone * rounded)
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
    books = over(toned(spine, rounded), ink(seed.device, 0.95, 0.86, 0.55), band)
    standing = step(height, top + 0.5)
    back = shaded(ink(seed.device, 0.16, 0.10, 0.07), torch.ones_like(height))
    board = shaded(ink(seed.device, 0.42, 0.26, 0.14), 1.0 + 0.25 * smooth(seed, "board", 40, 6))
    return over(over(back, books, standing), board, step(height, 18.3))
