"""Direction of the next step: along the tested model's gradient, or in random directions.

A direction has the shape of the tensor that moves and the length of one whole step. A random draw is a function of all bits of
the row's own seed and of the draw's number, so it does not depend on the batch or the slot. It is made on the device. A draw
with a negative number is the opposite of the one with that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from counterfoil.core.naming import stable_hash
from counterfoil.engine.device import send
from counterfoil.parts.generators.draws import normal, uniform

Norm = Literal["sign", "l2", "raw"]
Unit = Literal["scale", "absolute"]


@dataclass(frozen=True)
class StepLength:
    """Length of a step.

    In unit `scale` a step is `step` times the generator's own scale for that image, root-mean-square over the coordinates,
    so that `sign` and `l2` steps have the same Euclidean length. In unit `absolute` it is `step` in the norm itself: a
    coordinate for `sign`, the Euclidean length for `l2`, the factor on the gradient for `raw`.
    """

    step: float
    norm: Norm
    unit: Unit

    def scale_to_step(self, direction: Tensor, scale: Tensor) -> Tensor:
        """`direction` normalised and scaled to one step, row by row.  # (N, …), (N,)"""
        if self.norm == "sign":
            direction = direction.sign()
        elif self.norm == "l2":
            direction = direction / _length(direction).clamp_min(torch.finfo(torch.float32).tiny)
            if self.unit == "scale":
                direction = direction * direction[0].numel() ** 0.5
        if self.unit == "scale":
            direction = direction * _column(scale, direction)
        return self.step * direction


@dataclass(frozen=True)
class Rows:
    """Images that take a step: where they stand, and what their random draws depend on."""

    moving: Tensor  # (N, …)
    scale: Tensor  # (N,), the generator's natural length of a step of 1
    seeds: Sequence[int]
    draws: Sequence[int]  # numbers of the next draw
    lengths: Sequence[float] = ()  # root mean square in the generator's scale, for steps at a given distance


@dataclass(frozen=True)
class GradientAscent:
    """Algorithm 1's guidance: up the gradient of the tested model's loss.

    `climbs_only` says of every guidance whether a move that does not raise the loss is undone.
    """

    length: StepLength
    needs_gradient = True
    climbs_only = False

    def direction(self, gradient: Tensor | None, rows: Rows) -> Tensor:
        assert gradient is not None
        return self.length.scale_to_step(gradient, rows.scale)


@dataclass(frozen=True)
class RandomSteps:
    """Control at matched path: as many steps as the guided arm takes, each as long, in a new random direction.

    It matches the path, not the distance: random steps partly undo each other, so after ten it is 3.2 step lengths from the
    start, where the guided climb is 5.8.
    """

    length: StepLength
    climbs_only = False

    @property
    def needs_gradient(self) -> bool:
        """A raw gradient step is as long as the gradient, so the control has to know that length."""
        return self.length.norm == "raw"

    def direction(self, gradient: Tensor | None, rows: Rows) -> Tensor:
        noise = draw(rows.moving, rows.seeds, rows.draws, stream="control")  # apart from that of a search
        if gradient is not None:
            noise = noise / _length(noise) * _length(gradient)
        return self.length.scale_to_step(noise, rows.scale)


@dataclass(frozen=True)
class RandomLine:
    """Control at matched distance: one random line per image, on which step t ends as far away as the guided climb's step t."""

    needs_gradient = False
    climbs_only = False

    def direction(self, gradient: Tensor | None, rows: Rows) -> Tensor:
        line = draw(rows.moving, rows.seeds, [0] * len(rows.seeds), stream="line")
        lengths = send(torch.tensor(list(rows.lengths), dtype=line.dtype), line.device)  # (N,)
        each: float = line[0].numel() ** 0.5
        return line / _length(line) * each * _column(lengths * rows.scale, line)


@dataclass(frozen=True)
class RandomSearch:
    """Guidance for models without gradients: propose a step from where the image stands, keep it if the loss rose.

    Proposals are patches where what moves has a height and a width (`draw_patch`), and plain noise elsewhere. One that
    does not raise the loss is followed by its opposite, which does if the loss is about straight there, and then by a new
    one. Every proposal costs one model call. A step of Algorithm 1 is a proposal that raised the loss; only those are
    put to the oracle's stop rule and count against the budget, all proposals count against the queries.
    """

    length: StepLength
    needs_gradient = False
    climbs_only = True

    def direction(self, gradient: Tensor | None, rows: Rows) -> Tensor:
        spatial = rows.moving.dim() >= 4 and min(rows.moving.shape[-2:]) >= 4
        noise = (draw_patch if spatial else draw)(rows.moving, rows.seeds, rows.draws)
        return self.length.scale_to_step(noise, rows.scale)


Guidance = GradientAscent | RandomSteps | RandomLine | RandomSearch
"""Chooses directions: one step for every row."""


def draw(like: Tensor, seeds: Sequence[int], draws: Sequence[int], *, stream: str = "search") -> Tensor:
    """Standard normal noise of the shape of `like`, row i from (seeds[i], draws[i]) alone."""
    keys = _keys(seeds, draws, stream, like.device)
    return normal(keys, "noise", *like.shape[1:]) * _signs(draws, like)


def draw_patch(like: Tensor, seeds: Sequence[int], draws: Sequence[int]) -> Tensor:
    """A window of a few even cells, zero elsewhere, in the shape of `like`; row i from (seeds[i], draws[i]) alone.

    Networks answer to changes that hold together over an area far more than to noise that differs from pixel to pixel
    (the square attack of Andriushchenko et al., 2020, rests on that). The window is the whole, a half, a quarter or an eighth
    of the side, with one, two or four cells per side, normally distributed, each channel on its own.
    """
    keys = _keys(seeds, draws, "search", like.device)
    share, cells, top, left = uniform(keys, "window", 4).T[:, :, None]  # (N, 1) each
    share, cells = 2 ** (4 * share).long(), 2 ** (3 * cells).long()
    down, inside_down = _window(top, share, cells, like.shape[-2])
    across, inside_across = _window(left, share, cells, like.shape[-1])
    values = normal(keys, "cells", *like.shape[1:-2], 4, 4).movedim(0, -3)  # (…, N, 4, 4)
    rows = torch.arange(len(keys), device=like.device)[:, None, None]
    patch = values[..., rows, down[:, :, None], across[:, None, :]] * (inside_down[:, :, None] & inside_across[:, None, :])
    return patch.movedim(-3, 0) * _signs(draws, like)


def _window(start: Tensor, share: Tensor, cells: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """The cell of the window that each place along a side lies in, and whether it lies in any.  # (N, 1) → (N, side)"""
    length = (side // share).clamp_min(2)
    first = (start * (side - length + 1)).long()
    along = torch.arange(side, device=start.device)[None] - first
    return (along * cells // length).clamp(0, 3), (along >= 0) & (along < length)


def _keys(seeds: Sequence[int], draws: Sequence[int], stream: str, device: torch.device) -> Tensor:
    """One seed per draw.  # → (N,) int64"""
    keys = [stable_hash(seed, abs(number), stream) % 2**63 for seed, number in zip(seeds, draws, strict=True)]
    return send(torch.tensor(keys), device)


def _signs(draws: Sequence[int], like: Tensor) -> Tensor:
    return _column(send(torch.tensor([-1.0 if number < 0 else 1.0 for number in draws]), like.device), like)


def _length(rows: Tensor) -> Tensor:
    return _column(rows.flatten(1).norm(dim=1), rows)


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.dim() - 1))
