"""The attribute checker: one timm network whose output vector holds the scores of every factor's values, factor after factor.

For tests and audits. Train it once before the decoders, whose perceptual loss it gives, and again after them, since a checker
that never saw a decoder's work misreads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.lab.train.artefacts import artefact_pool
from counterfoil.lab.train.formats import load_timm, normalise, placed, save_timm
from counterfoil.lab.train.loop import Schedule, fit
from counterfoil.lab.train.pool import PoolSize, to_floats
from counterfoil.lab.train.run import Run
from counterfoil.lab.vocabulary import FACTORS

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
    schedule: Schedule = Schedule(steps=22_000, batch=512, learning_rate=2e-3)
    pool: PoolSize = PoolSize()


def train(run: Run, recipe: Attributes) -> None:
    """Train the checker on scenes and on what the decoders that exist make of them."""
    pool = artefact_pool(run.garments(), run=run, size=recipe.pool)
    model = load_timm(run.out) if run.resumes else _fresh(recipe)
    model = placed(model, run.device).train().requires_grad_(True)
    batch = run.batch or recipe.schedule.batch

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        images = normalise(to_floats(columns["images"])).contiguous(memory_format=torch.channels_last)
        with run.autocast():
            scores = model(images).float()
        return attribute_losses(scores, columns["factors"].long())

    def save(averaged: nn.Module) -> None:
        save_timm(averaged, run.out, architecture=recipe.architecture, arguments=recipe.arguments, labels=LABELS)

    fit(model, loss, run=run, schedule=recipe.schedule, save=save)


def split(scores: Tensor) -> dict[str, Tensor]:
    """The scores of each factor's values.  # (N, 64) → {factor: (N, values)}"""
    parts = scores.split([len(values) for values in FACTORS.values()], dim=1)
    return dict(zip(FACTORS, parts, strict=True))


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
