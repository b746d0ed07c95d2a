"""The classifiers under test: accuracy on what they were trained on, on the whole world, and under attack."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from counterfoil.lab.measures.bench import BATCH, Bench
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.train.classifiers import RECIPES, attacked

TARGETS: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "diverse": {"full": (93, None)},
    "narrow": {"narrow": (95, None), "full": (None, 40)},
    "background-shortcut": {"background-shortcut": (97, None), "full": (None, 60)},
    "colour-shortcut": {"colour-shortcut": (97, None), "full": (None, 60)},
}
"""Least and greatest accuracy in per cent that a classifier should have on a distribution."""

ATTACKED = ("narrow", "augmented", "adversarial")
"""The models whose accuracy under attack says what adversarial training bought."""
ATTACK_SIZE = 6 / 255
ATTACK_STEPS = 10
ATTACK_COUNT = 1000  # scenes; each costs as much as thirty others


def classifier(bench: Bench, name: str) -> list[Reading]:
    """Accuracy on the distribution it was trained on and on the full one, and under attack where that is asked of it."""
    own = RECIPES[name].distribution
    targets = TARGETS.get(name, {})
    readings = []
    for distribution in dict.fromkeys((own, "full")):
        scenes, images = bench.scenes(distribution)
        labels = scenes.factors["garment"]
        low, high = targets.get(distribution, (None, None))
        right = bench.classify(name, images) == labels
        readings.append(share(f"accuracy, {distribution}", right, at_least=low, at_most=high))
        if distribution == own and name in ATTACKED:
            stood = withstood(bench, name, images[:ATTACK_COUNT], labels[:ATTACK_COUNT])
            readings.append(share(f"accuracy, {own}, attacked (PGD, 6/255, {ATTACK_STEPS} steps)", stood))
    return readings


def withstood(bench: Bench, name: str, images: Tensor, labels: Tensor) -> Tensor:
    """Whether each picture is still told right after projected gradient ascent on the model's own loss.  # → (N,) bool"""
    scores = bench.classifier(name)
    torch.manual_seed(bench.seed)  # the attack starts from a random point
    right = []
    for some, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        moved = attacked(scores, some, classes, size=ATTACK_SIZE, steps=ATTACK_STEPS)
        with torch.no_grad():
            right.append(scores(moved).argmax(1) == classes)
    return torch.cat(right)
