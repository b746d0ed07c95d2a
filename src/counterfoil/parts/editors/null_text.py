"""Null-text optimisation, many pictures at a time.

Paper: Mokady, Hertz, Aberman, Pritch and Cohen-Or, "Null-text inversion for editing real images using guided diffusion
models". With guidance a walk down strays from the levels that DDIM inversion found. So the embedding of the empty text is
fitted, step by step and picture by picture, until the guided walk keeps to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.schedule import Schedule, guided


@dataclass(frozen=True)
class Fitting:
    """How the embeddings are fitted; the paper's values."""

    inner_steps: int = 10
    rate: float = 1e-2
    tolerance: float = 1e-5  # a row ends its step once its loss is below tolerance + i · slack
    slack: float = 2e-5

    def rate_at(self, step: int) -> float:
        """Adam's learning rate at a step of the walk."""
        return self.rate * max(1 - step / 100, 0.0)


@dataclass(frozen=True)
class Fitted:
    """Embeddings for the unconditional side of every step, and where the guided walk ends with them."""

    embeddings: Tensor  # (N, steps, L, D) float16
    latents: Tensor  # (N, C, h, w)
    inner_steps: Tensor  # (N,) taken altogether


@dataclass(frozen=True)
class NullText:
    """The optimisation over one diffusion and schedule."""

    diffusion: Diffusion
    schedule: Schedule
    guidance: float
    fitting: Fitting = field(default_factory=Fitting)

    def fit(self, levels: list[Tensor], *, conditional: Tensor, empty: Tensor) -> Fitted:
        """Fit the embeddings of N pictures to the levels of their inversion.  # conditional and empty: (N, L, D)"""
        latents, unconditional = levels[0], empty
        found, taken = [], torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        for step in range(self.schedule.steps):
            with torch.no_grad():
                told = self.diffusion.predict(latents, self.schedule.times[step], conditional)
            unconditional, counts = self._fit_step(step, latents, told=told, start=unconditional, goal=levels[step + 1])
            # Kept in half precision to halve the cache. The walk goes on from what is kept, so that no error is carried along.
            unconditional = unconditional.half().float()
            with torch.no_grad():
                latents = self._reached(step, latents, told=told, unconditional=unconditional)
            found.append(unconditional.half())
            taken += counts
        return Fitted(torch.stack(found, dim=1), latents, taken)

    def _fit_step(self, step: int, latents: Tensor, *, told: Tensor, start: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Adam on the rows that are not there yet; a row that is leaves the batch, so that no row pays for another."""
        embeddings, counts = start.clone(), torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        rows = torch.arange(len(latents), device=latents.device)
        adam = Adam(torch.zeros_like(start), torch.zeros_like(start))
        for inner in range(self.fitting.inner_steps):
            leaf = embeddings[rows].requires_grad_()
            reached = self._reached(step, latents[rows], told=told[rows], unconditional=leaf)
            losses = (reached - goal[rows]).square().flatten(1).mean(1)  # (rows,)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            with torch.no_grad():
                embeddings[rows] = leaf - self.fitting.rate_at(step) * adam.direction(gradient, inner + 1)
                counts[rows] += 1
                # A loss that is not a number ends its row too: it would never get better.
                left = losses >= self.fitting.tolerance + step * self.fitting.slack
                rows, adam = rows[left], adam.keep(left)
            if len(rows) == 0:
                break
        return embeddings, counts

    def _reached(self, step: int, latents: Tensor, *, told: Tensor, unconditional: Tensor) -> Tensor:
        """Where the guided walk gets to in one step."""
        answer = self.diffusion.predict(latents, self.schedule.times[step], unconditional)
        estimate = self.schedule.estimate(guided(answer, told, self.guidance), latents, step)
        return self.schedule.towards(estimate, step + 1)


@dataclass
class Adam:
    """Adam's moments, one row a picture, so that rows can leave."""

    mean: Tensor
    square: Tensor
    decay: tuple[float, float] = (0.9, 0.999)

    def direction(self, gradient: Tensor, count: int) -> Tensor:
        """The step of length about 1 that follows from this gradient, the `count`-th."""
        first, second = self.decay
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient.square()
        return self.mean / (1 - first**count) / ((self.square / (1 - second**count)).sqrt() + 1e-8)

    def keep(self, rows: Tensor) -> Adam:
        """The moments of these rows alone.  # (N,) bool"""
        return Adam(self.mean[rows], self.square[rows], self.decay)
