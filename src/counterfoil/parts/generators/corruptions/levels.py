"""Severity in levels. A severity of 1 is level 5 of ImageNet-C (Hendrycks and Dietterich, 2019), 0.2 is level 1.

Lengths are given in pixels of a 224-pixel picture and scale with the picture, so that a level looks alike at every size.
The families follow theirs but are written anew, differentiable in the severity, and give other pixels: results are not
to be set beside published ImageNet-C numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

COUNT = 5
SIDE = 224  # the picture that lengths refer to


def pixels(images: Tensor, length: float) -> float:
    """A length at 224 pixels, in pixels of these pictures."""
    return length * min(images.shape[-2:]) / SIDE


def split(severity: Tensor) -> tuple[Tensor, Tensor]:
    """The level at or below a severity, 0 to 4, and the way from there to the next one, in [0, 1]."""
    height = severity * COUNT
    lower = height.detach().floor().clamp(0, COUNT - 1)
    return lower.long(), height - lower


def along(severity: Tensor, values: Sequence[float]) -> Tensor:
    """The value at a severity, given those at levels 0 to 5; straight lines between them."""
    lower, way = split(severity)
    table = torch.tensor(values, device=severity.device)
    return torch.lerp(table[lower], table[lower + 1], way)


def blend(images: Tensor, severity: Tensor, corrupt: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    """Pictures at a severity, blended from those at the whole levels on either side.

    For families that are not differentiable in their parameter, or only at a high price. `corrupt(image, level, row)`
    gives one picture at a level from 1 to 5; level 0 is the picture itself.
    """
    lower, way = split(severity)
    below = lower.flatten().tolist()
    at_below = _at(images, below, corrupt)
    if not torch.is_grad_enabled() and not way.any():
        return at_below
    return torch.lerp(at_below, _at(images, [level + 1 for level in below], corrupt), way)


def _at(images: Tensor, levels: Sequence[int], corrupt: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    rows = images.split(1)
    return torch.cat([rows[i] if level == 0 else corrupt(rows[i], level, i) for i, level in enumerate(levels)])
