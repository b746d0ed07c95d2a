"""Rectangles of latent cells: what a search moves in, and what has to be decoded again because of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """Rows `top` to `bottom` and columns `left` to `right` of a grid of cells, the last ones not included."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def area(self) -> int:
        """How many cells it holds."""
        return (self.bottom - self.top) * (self.right - self.left)

    def grown(self, cells: int, *, grid: tuple[int, int]) -> Box:
        """With a margin on every side, as far as the grid goes."""
        top, left = max(self.top - cells, 0), max(self.left - cells, 0)
        return Box(top, left, min(self.bottom + cells, grid[0]), min(self.right + cells, grid[1]))

    def cut(self, rows: Tensor, *, grid: tuple[int, int]) -> Tensor:
        """Its part of feature maps that have a whole number of pixels a cell.  # (N, C, H, W) → (N, C, h, w)"""
        return rows[(..., *self.slices(rows, grid=grid))]

    def paste(self, part: Tensor, whole: Tensor, *, grid: tuple[int, int]) -> Tensor:
        """`whole` with its part replaced; gradients reach `part`.  # (N, C, h, w) and (N, C, H, W) → (N, C, H, W)"""
        filled = whole.to(torch.promote_types(part.dtype, whole.dtype), copy=True)
        filled[(..., *self.slices(whole, grid=grid))] = part.to(filled.dtype)
        return filled

    def cells(self, *, grid: tuple[int, int]) -> Tensor:
        """Which cells of the grid it holds.  # (H, W) bool"""
        held = torch.zeros(grid, dtype=torch.bool)
        held[self.top : self.bottom, self.left : self.right] = True
        return held

    def slices(self, rows: Tensor, *, grid: tuple[int, int]) -> tuple[slice, slice]:
        """Its rows and columns in feature maps of another resolution."""
        down, across = rows.shape[-2] // grid[0], rows.shape[-1] // grid[1]  # pixels a cell
        return slice(self.top * down, self.bottom * down), slice(self.left * across, self.right * across)


def around(cells: Tensor) -> Box:
    """The smallest box that holds every true cell.  # (H, W) bool, not all of them false"""
    down, across = cells.any(1).nonzero()[:, 0].tolist(), cells.any(0).nonzero()[:, 0].tolist()
    return Box(down[0], across[0], down[-1] + 1, across[-1] + 1)


def richest(weights: Tensor, *, area: int) -> Box:
    """The box of at most `area` cells that holds most of the weight.  # (H, W), not negative"""
    height, width = weights.shape
    sums = torch.zeros(height + 1, width + 1, dtype=torch.float64)
    sums[1:, 1:] = weights.double().cumsum(0).cumsum(1)
    best, found = -1.0, Box(0, 0, 1, 1)
    for tall in range(1, min(height, area) + 1):
        wide = min(width, area // tall)
        held = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]  # by its top left cell
        most = int(held.argmax())
        top, left = divmod(most, held.shape[1])
        if float(held.flatten()[most]) > best + 1e-12:
            best, found = float(held.flatten()[most]), Box(top, left, top + tall, left + wide)
    return found
