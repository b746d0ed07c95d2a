"""A pool of rendered scenes on the training device, some of which are redrawn all the time.

Rendering a fresh picture for every sample would cost more than training the small models on it; a fixed set would be
learnt by heart. The pool starts small, grows to its capacity and then replaces its oldest pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterfoil.lab.scenes import render, sample
from counterfoil.lab.train.run import Run
from counterfoil.lab.vocabulary import FACTORS

Columns = dict[str, Tensor]
Draw = Callable[[int, int], Columns]
"""Given a count and a seed, that many samples as named columns."""
Keep = Callable[[Tensor, Tensor], Columns]
"""Given pictures and their factors, the columns that stand for the pictures."""


@dataclass(frozen=True)
class PoolSize:
    """How much is rendered: at the start, at most, and for each sample that is used."""

    start: int = 16_384
    capacity: int = 262_144
    chunk: int = 16_384
    """How many are drawn at a time: launching the kernels that draw takes as long for a few."""
    fresh: float = 0.1
    """How many scenes are drawn for each sample that training uses."""


class Pool:
    """Samples to draw batches from."""

    def __init__(self, draw: Draw, *, size: PoolSize, seed: int, device: str) -> None:
        self._draw = draw
        self._size = size
        self._seed = seed * 1_000_003
        self._chance = torch.Generator(device).manual_seed(seed)
        self._device = device
        self._columns: Columns = {}
        self._drawn = 0
        self._owed = float(max(size.start, min(size.chunk, size.capacity)))
        self._refill()

    def batch(self, count: int) -> Columns:
        """A random batch; on the way, the scenes that are due are drawn."""
        self._owed += count * self._size.fresh
        self._refill()
        held = min(self._drawn, self._size.capacity)
        rows = torch.randint(held, (count,), generator=self._chance, device=self._device)
        return {name: column[rows] for name, column in self._columns.items()}

    def _refill(self) -> None:
        chunk = min(self._size.chunk, self._size.capacity)
        while self._owed >= chunk:
            self._owed -= chunk
            # Every chunk has its own seed, so that two pools of one seed hold the same scenes.
            drawn = self._draw(chunk, self._seed + self._drawn // chunk)
            for name, values in drawn.items():
                if name not in self._columns:
                    self._columns[name] = values.new_empty((self._size.capacity, *values.shape[1:]))
                at = self._drawn % self._size.capacity
                self._columns[name][at : at + chunk] = values[: self._size.capacity - at]
            self._drawn += chunk


def to_bytes(images: Tensor) -> Tensor:
    """Pictures in [0, 1] as 8-bit values, as a file would hold them."""
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def as_bytes(images: Tensor, factors: Tensor) -> Columns:
    """The pictures themselves, as the column 'images'."""
    return {"images": to_bytes(images)}


def scene_pool(run: Run, *, size: PoolSize, distribution: str = "full", keep: Keep = as_bytes) -> Pool:
    """A pool of scenes: the column 'factors', one a factor in the order of FACTORS, and what is kept of the pictures."""
    garments = run.garments()

    @torch.no_grad()
    def draw(count: int, at: int) -> Columns:
        scenes = sample(count, garments=garments, distribution=distribution, seed=at, device=run.device)
        images, _ = render(scenes, garments)
        factors = torch.stack([scenes.factors[name] for name in FACTORS], dim=1)  # (N, 8)
        return {"factors": factors.to(torch.uint8), **keep(images, factors)}

    return Pool(draw, size=size, seed=run.seed, device=run.device)


def mirrored(images: Tensor) -> Tensor:
    """The pictures, half of them left to right: no attribute of a scene tells its sides apart."""
    turned = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(turned, images.flip(-1), images)


def to_floats(images: Tensor) -> Tensor:
    """8-bit pictures back in [0, 1]."""
    return images.float() / 255
