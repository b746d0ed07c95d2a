"""What a painter gives back, and whether it can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Painter

FLAT = 1.5 / 255  # a picture whose values lie closer together than this shows nothing


@dataclass(frozen=True)
class Painted:
    """Pictures and what the painter's own safety filter said of each: None where it has no filter."""

    images: Tensor  # (N, 3, H, W) in [0, 1]
    flagged: tuple[bool | None, ...]


@runtime_checkable
class FilteredPainter(Painter, Protocol):
    """A painter that also says what its safety filter found."""

    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One picture a prompt, with the filter's word."""
        ...


def paint(painter: Painter, prompts: Sequence[str], seeds: Tensor) -> Painted:
    """Ask any painter, and check the shape of its answer."""
    if isinstance(painter, FilteredPainter):
        painted = painter.paint_filtered(prompts, seeds)
    else:
        painted = Painted(painter.paint(prompts, seeds), (None,) * len(prompts))
    images = painted.images
    if images.ndim != 4 or images.shape[1] != 3 or len(images) != len(prompts) or len(painted.flagged) != len(prompts):
        raise BadPart(f"the painter gave {tuple(images.shape)} for {len(prompts)} prompts; (N, 3, H, W) is needed")
    return painted


def fault(image: Tensor, *, flagged: bool | None = None) -> str:
    """Why a painted picture cannot be used, or nothing.  # (3, H, W)"""
    if flagged:
        return "withheld by the painter's safety filter"
    if not torch.isfinite(image).all():
        return "the painter gave values that are not finite; try another precision"
    low, high = (float(value) for value in torch.aminmax(image))
    if low < -1e-3 or high > 1 + 1e-3:
        return f"the painter gave values from {low:.3g} to {high:.3g}, outside [0, 1]"
    if high - low < FLAT:
        return "the painter gave a black picture" if high < FLAT else "the painter gave a picture of one colour"
    return ""
