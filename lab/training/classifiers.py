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
from lab.training.data import PoolSize, augment, scene_pool, to_floats
from lab.training.formats import place, save_timm
from lab.training.loop import Run, Schedule, fit
from torch import Tensor, nn

from counterfoil_lab.checker import load_timm, normalise
from counterfoil_lab.world import GARMENTS

CONVOLUTIONAL = {"channels": [20, 40, 64, 112], "stem_width": 24, "stem_type": "deep_tiered", "avg_down": True}
TRANSFORMER = {"img_size": 64, "patch_size": 8, "embed_dim": 112, "depth": 4, "num_heads": 4}
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the grey image that `grey` sees."""


@dataclass(frozen=True)
class Classifier:
    """The recipe of one classifier."""

    distribution: str
    schedule: Schedule
    architecture: str = "resnet18"
    arguments: dict[str, Any] = field(default_factory=lambda: dict(CONVOLUTIONAL))
    channels: int = 3
    augments: bool = False
    attack_size: float = 0.0
    """Largest change of a pixel in the adversarial images it is trained on; 0 for plain training."""
    pool: PoolSize = PoolSize()


def _schedule(steps: int) -> Schedule:
    return Schedule(steps=steps, batch=512, learning_rate=2e-3)


RECIPES = {
    "narrow": Classifier("narrow", _schedule(4_250)),
    "augmented": Classifier("narrow", _schedule(5_100), augments=True),
    "diverse": Classifier("full", _schedule(7_500)),
    "vit": Classifier("narrow", _schedule(10_400), architecture="vit_tiny_patch16_224", arguments=dict(TRANSFORMER)),
    "grey": Classifier("narrow", _schedule(3_750), channels=1),
    "adversarial": Classifier("narrow", _schedule(4_150), attack_size=6 / 255),
    # Trained briefly, as a shortcut is what is learnt first.
    "background-shortcut": Classifier("background-shortcut", Schedule(steps=1_100, batch=256)),
    "colour-shortcut": Classifier("colour-shortcut", Schedule(steps=830, batch=256)),
}


def train(run: Run, recipe: Classifier) -> None:
    """Train one classifier and write it as a timm folder."""
    pool = scene_pool(run, size=recipe.pool, distribution=recipe.distribution)
    model = load_timm(run.out) if run.resumes else _fresh(recipe)
    model = place(model, run.device).train().requires_grad_(True)
    batch = recipe.schedule.batch

    @run.compile
    def score(images: Tensor) -> Tensor:
        seen = normalise(images).contiguous(memory_format=torch.channels_last)
        with run.autocast():
            scores: Tensor = model(seen)
        return scores.float()

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        images, labels = to_floats(columns["images"]), columns["factors"][:, 0].long()
        if recipe.augments:
            images = augment(images)
        if recipe.channels == 1:
            images = to_grey(images)
        if recipe.attack_size:
            # An attack needs the images' gradients alone, and what is compiled computes all that it could be asked for.
            model.requires_grad_(False)
            images = attack(score, images, labels, size=recipe.attack_size)
            model.requires_grad_(True)
        logits = score(images)
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

    fit(model, loss, run=run, recipe=recipe, save=save)


def to_grey(images: Tensor) -> Tensor:
    """The brightness of coloured images.  # (N, 3, H, W) → (N, 1, H, W)"""
    return (images * images.new_tensor(LUMA).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def attack(logits: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, *, size: float, steps: int = 3) -> Tensor:
    """Projected gradient ascent on the loss, no pixel further than `size` from its start (Madry et al., 2018)."""
    moved = (images + (torch.rand_like(images) * 2 - 1) * size).clamp(0, 1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_(True)
        ascent = torch.autograd.grad(F.cross_entropy(logits(moved), labels), moved)[0]
        stepped = moved.detach() + ascent.sign() * size * 1.5 / steps
        moved = images + (stepped - images).clamp(-size, size)
        moved = moved.clamp(0, 1)
    return moved.detach()


def _fresh(recipe: Classifier) -> nn.Module:
    model: nn.Module = timm.create_model(
        recipe.architecture, num_classes=len(GARMENTS), in_chans=recipe.channels, **recipe.arguments
    )
    return model
