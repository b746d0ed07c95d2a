"""The attribute checker: one timm network whose output vector holds the scores of every factor's values, factor after factor.

For tests and audits. Train it once before the decoders, whose perceptual loss it gives, and again after them, since a checker
that never saw a decoder's work misreads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from lab.training.data import PoolSize, artefact_pool, mirror_rows, to_floats
from lab.training.formats import place, save_timm
from lab.training.loop import Run, Schedule, fit
from torch import Tensor, nn

from counterfoil_lab.checker import load_timm, normalise, split
from counterfoil_lab.world import FACTORS

LABELS = [f"{name}: {value}" for name, values in FACTORS.items() for value in values]


@dataclass(frozen=True)
class Attributes:
    """The checker's size and schedule."""

    architecture: str = "resnet18"
    arguments: dict[str, Any] = field(
        default_factory=lambda: {
            "channels": [40, 80, 128, 176],
            "stem_width": 32,
            "stem_type": "deep_tiered",
            "avg_down": True,
        }
    )
    schedule: Schedule = Schedule(steps=15_900, batch=512, learning_rate=2e-3)
    pool: PoolSize = PoolSize(start=65_536, capacity=1_048_576, fresh=0.2)


def train(run: Run, recipe: Attributes) -> None:
    """Train the checker on scenes and on what the decoders that exist make of them."""
    decoders = run.earlier("vqgan", "diffusion")
    pool = artefact_pool(run, size=recipe.pool, decoders=decoders)
    model = load_timm(run.out) if run.resumes else _fresh(recipe)
    model = place(model, run.device).train().requires_grad_(True)
    batch = recipe.schedule.batch

    @run.compile
    def score(images: Tensor) -> Tensor:
        seen = normalise(to_floats(images)).contiguous(memory_format=torch.channels_last)
        with run.autocast():
            scores: Tensor = model(seen)
        return scores.float()

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        return attribute_losses(score(mirror_rows(columns["images"])), columns["factors"].long())

    def save(averaged: nn.Module) -> None:
        save_timm(averaged, run.out, architecture=recipe.architecture, arguments=recipe.arguments, labels=LABELS)

    fit(model, loss, run=run, recipe=recipe, save=save, built_on=decoders)


def attribute_losses(scores: Tensor, factors: Tensor) -> dict[str, Tensor]:
    """The sum of the factors' cross-entropies, and the accuracy of the two hardest factors for the log."""
    total = scores.new_zeros(())
    right = {}
    for column, (name, part) in enumerate(split(scores).items()):
        total = total + F.cross_entropy(part, factors[:, column], label_smoothing=0.02)
        if name in ("garment", "material"):
            right[name] = (part.argmax(1) == factors[:, column]).float().mean()
    return {"loss": total, **right}


def _fresh(recipe: Attributes) -> nn.Module:
    model: nn.Module = timm.create_model(recipe.architecture, num_classes=len(LABELS), **recipe.arguments)
    return model


class Perceptual:
    """Distance of two images in the checker's early layers: near 0 where its attributes would be read alike."""

    def __init__(self, folder: Path, device: str) -> None:
        self._model: Any = place(load_timm(folder), device)

    def distance(self, made: Tensor, wanted: Tensor) -> Tensor:
        """Mean squared distance of unit-length features, summed over three depths.  # (N, 3, H, W) in [0, 1] → ()"""
        with torch.no_grad():
            targets = self._features(wanted)
        distances = [(one - other).square().sum(1).mean() for one, other in zip(self._features(made), targets, strict=True)]
        return torch.stack(distances).sum()

    def _features(self, images: Tensor) -> list[Tensor]:
        seen = normalise(images).contiguous(memory_format=torch.channels_last)
        layers = self._model.forward_intermediates(seen, indices=[0, 1, 2], intermediates_only=True)
        return [F.normalize(layer.float(), dim=1) for layer in layers]


class PerceptualLoss:
    """The perceptual distance from a share of the training on; 0 before it, and without a trained checker."""

    def __init__(self, checker: Path | None, *, run: Run, begins: float) -> None:
        self._begins = 0.0 if run.resumes else begins
        self._distance: Callable[[Tensor, Tensor], Tensor] | None = None
        if checker is not None:
            self._distance = run.compile(Perceptual(checker, run.device).distance)

    def __call__(self, progress: float, made: Tensor, wanted: Tensor) -> Tensor:
        """The distance of generated images from those they should be.  # (N, 3, H, W) in [0, 1] → ()"""
        if self._distance is None or progress < self._begins:
            return made.new_zeros(())
        return self._distance(made, wanted)
