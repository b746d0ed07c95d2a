"""Whether a model says the same of a picture every time, and whatever other pictures come with it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from counterfoil.doctor.findings import Finding
from counterfoil.doctor.sample import Handful
from counterfoil.parts.contracts import Model
from counterfoil.parts.weights import modules_of

TOLERANCE = 0.01  # of the spread of the logits; kernels that round differently stay far below it
_EVALUATION = "put the network into evaluation mode: module.eval(), and training=self.training in functional dropout"


def check_steadiness(model: Model, few: Handful) -> list[Finding]:
    """Signs of a network in training mode: layers that say so, answers that change, rows that depend on each other."""
    images = few.images[:8].clone()
    with torch.no_grad():
        model.logits(images)
        if not torch.equal(images, few.images[:8]):
            return [_overwrites(float((images - few.images[:8]).abs().max()))]
        first, again = model.logits(images).float(), model.logits(images).float()
        alone = torch.cat([model.logits(images[row : row + 1]).float() for row in range(min(4, len(images)))])
    spread = first.std().clamp_min(1e-9)
    noise = float((first - again).abs().max() / spread)
    company = float((first[: len(alone)] - alone).abs().max() / spread)
    layers = _in_training(model)
    which = f" ({layers})" if layers else ""
    if noise > TOLERANCE:
        return [
            Finding(
                "training mode",
                "the model answers differently each time it is asked: dropout or another random layer is at work",
                f"the same {len(images)} pictures asked twice: logits differ by {noise:.1%} of their spread{which}",
                _EVALUATION,
            )
        ]
    if company > TOLERANCE:
        return [
            Finding(
                "training mode",
                "a picture's logits depend on the pictures beside it: batch normalisation uses the batch's own statistics",
                f"the same picture alone and among {len(images)}: logits differ by {company:.1%} of their spread{which}",
                _EVALUATION,
            )
        ]
    if layers:
        return [
            Finding(
                "training mode", "layers are in training mode, without effect so far", layers, _EVALUATION, severity="caution"
            )
        ]
    return []


def _overwrites(most: float) -> Finding:
    return Finding(
        "overwritten input",
        "the model writes into the images it is given; a run hands it copies, other callers may not",
        f"pixel values changed by up to {most:.3g}",
        "replace in-place operations on the input, such as sub_ or data.zero_(), by ones that make a new tensor",
    )


def _in_training(model: Model) -> str:
    kinds: dict[str, int] = {}
    for root in modules_of(model):
        for module in root.modules():
            if module.training and _trains(module):
                kinds[type(module).__name__] = kinds.get(type(module).__name__, 0) + 1
    return ", ".join(f"{count} × {kind} in training mode" for kind, count in kinds.items())


def _trains(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm | _DropoutNd)
