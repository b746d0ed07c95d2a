"""A perceptual distance from the lab's own attribute checker, as LPIPS is one from ImageNet classifiers (Zhang et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.lab.train.formats import load_timm, normalise, placed
from counterfoil.lab.train.run import Run


class Perceptual:
    """How differently the checker's early layers see two pictures: near 0 where its attributes would be read alike."""

    def __init__(self, folder: Path, device: str) -> None:
        self._model: Any = placed(load_timm(folder), device)

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
            self._distance = run.compiled(Perceptual(checker, run.device).distance)

    def __call__(self, progress: float, made: Tensor, wanted: Tensor) -> Tensor:
        """The distance of made pictures from those they should be.  # (N, 3, H, W) in [0, 1] → ()"""
        if self._distance is None or progress < self._begins:
            return made.new_zeros(())
        return self._distance(made, wanted)
