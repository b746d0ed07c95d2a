"""The classifiers under test: one architecture, told apart by what they were shown and how.

`narrow` is the point of reference. Each of `augmented`, `vit`, `grey` and `adversarial` differs from it in one thing; `diverse`
has seen everything; the two shortcut models were shown data in which a background or a colour gives the class away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.lab.train.augment import augment
from counterfoil.lab.train.formats import load_timm, normalise, placed, save_timm
from counterfoil.lab.train.loop import Schedule, fit
from counterfoil.lab.train.pool import PoolSize, scene_pool, to_floats
from counterfoil.lab.train.run import Run
from counterfoil.lab.vocabulary import GARMENTS

CONVOLUTIONAL = {"channels": [20, 40, 64, 112], "stem_width": 24, "stem_type": "deep_tiered", "avg_down": True}
TRANSFORMER = {"img_size": 64, "patch_size": 8, "embed_dim": 112, "depth": 4, "num_heads": 4}
LUMA = (0.299, 0.587, 0.114)
"""How much red, green and blue count in the grey picture that `grey` sees."""


@dataclass(frozen=True)
class Classifier:
    """What makes one classifier."""

    distribution: str
    architecture: str = "resnet18"
    arguments: dict[str, Any] = field(default_factory=lambda: dict(CONVOLUTIONAL))
    channels: int = 3
    augments: bool = False
    attack_size: float = 0.0
    """Largest change of a pixel in the adversarial pictures it is trained on; 0 for plain training."""
    schedule: Schedule = Schedule(steps=4_500, batch=512, learning_rate=2e-3)
    pool: PoolSize = PoolSize()


RECIPES = {
    "narrow": Classifier("narrow"),
    "augmented": Classifier("narrow", augments=True),
    "diverse": Classifier("full", schedule=Schedule(steps=7_500, batch=512, learning_rate=2e-3)),
    "vit": Classifier("narrow", architecture="vit_tiny_patch16_224", arguments=dict(TRANSFORMER)),
    "grey": Classifier("narrow", channels=1),
    "adversarial": Classifier("narrow", attack_size=6 / 255),
    # Trained briefly, as a shortcut is what is learnt first.
    "background-shortcut": Classifier("background-shortcut", schedule=Schedule(steps=1_100, batch=256)),
    "colour-shortcut": Classifier("colour-shortcut", schedule=Schedule(steps=800, batch=256)),
}


def train(run: Run, recipe: Classifier) -> None:
    """Train one classifier and write it as a timm folder."""
    pool = scene_pool(run.garments(), distribution=recipe.distribution, size=recipe.pool, seed=run.seed, device=run.device)
    model = load_timm(run.out) if run.resumes else _fresh(recipe)
    model = placed(model, run.device).train().requires_grad_(True)
    batch = run.batch or recipe.schedule.batch

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        images, labels = to_floats(columns["images"]), columns["factors"][:, 0].long()
        if recipe.augments:
            images = augment(images)
        with run.autocast():
            if recipe.attack_size:
                images = attacked(lambda x: _logits(model, x, recipe), images, labels, size=recipe.attack_size)
            logits = _logits(model, images, recipe).float()
        right = (logits.argmax(1) == labels).float().mean()
        return {"loss": F.cross_entropy(logits, labels, label_smoothing=0.02), "accuracy": right}

    def save(averaged: nn.Module) -> None:
        save_timm(
            averaged,
            run.out,
            architecture=recipe.architecture,
            arguments=recipe.arguments,
            labels=list(GARMENTS),
            channels=recipe.channels,
        )

    fit(model, loss, run=run, schedule=recipe.schedule, save=save)


def to_grey(images: Tensor) -> Tensor:
    """The brightness of coloured pictures.  # (N, 3, H, W) → (N, 1, H, W)"""
    return (images * images.new_tensor(LUMA).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def attacked(logits: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, *, size: float, steps: int = 3) -> Tensor:
    """Projected gradient ascent on the loss, no pixel further than `size` from its start (Madry et al., 2018)."""
    moved = (images + (torch.rand_like(images) * 2 - 1) * size).clamp(0, 1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_(True)
        ascent = torch.autograd.grad(F.cross_entropy(logits(moved).float(), labels), moved)[0]
        stepped = moved.detach() + ascent.sign() * size * 1.5 / steps
        moved = images + (stepped - images).clamp(-size, size)
        moved = moved.clamp(0, 1)
    return moved.detach()


def _fresh(recipe: Classifier) -> nn.Module:
    model: nn.Module = timm.create_model(
        recipe.architecture, num_classes=len(GARMENTS), in_chans=recipe.channels, **recipe.arguments
    )
    return model


def _logits(model: nn.Module, images: Tensor, recipe: Classifier) -> Tensor:
    seen = normalise(to_grey(images) if recipe.channels == 1 else images)
    logits: Tensor = model(seen.contiguous(memory_format=torch.channels_last))
    return logits
