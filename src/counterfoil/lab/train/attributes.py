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
from counterfoil.lab.train.loop import fit
from counterfoil.lab.train.pool import PoolSize, mirrored, to_floats
from counterfoil.lab.train.recipe import Schedule
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
    schedule: Schedule = Schedule(steps=15_900, batch=512, learning_rate=2e-3)
    pool: PoolSize = PoolSize(start=65_536, capacity=1_048_576, fresh=0.2)


def train(run: Run, recipe: Attributes) -> None:
    """Train the checker on scenes and on what the decoders that exist make of them."""
    decoders = run.earlier("vqgan", "diffusion")
    pool = artefact_pool(run, size=recipe.pool, decoders=decoders)
    model = load_timm(run.out) if run.resumes else _fresh(recipe)
    model = placed(model, run.device).train().requires_grad_(True)
    batch = recipe.schedule.batch

    def scored(images: Tensor) -> Tensor:
        seen = normalise(to_floats(images)).contiguous(memory_format=torch.channels_last)
        with run.autocast():
            scores: Tensor = model(seen)
        return scores.float()

    score = run.compiled(scored)

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        return attribute_losses(score(mirrored(columns["images"])), columns["factors"].long())

    def save(averaged: nn.Module) -> None:
        save_timm(averaged, run.out, architecture=recipe.architecture, arguments=recipe.arguments, labels=LABELS)

    fit(model, loss, run=run, recipe=recipe, save=save, built_on=decoders)


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
