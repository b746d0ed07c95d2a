"""The attribute checker at work: what it reads off pictures of the lab's world. For audits; it takes no part in any result."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from counterfoil.lab.places import WEIGHTS
from counterfoil.lab.train.attributes import split
from counterfoil.lab.train.formats import load_timm, normalise

BATCH = 256


class Checker:
    """Reads every factor off a picture."""

    def __init__(self, device: str | torch.device = "cpu", *, folder: Path = WEIGHTS / "attributes") -> None:
        self._network = load_timm(folder).to(device)
        self._device = device

    @torch.no_grad()
    def read(self, pictures: Tensor) -> dict[str, Tensor]:
        """The value it sees of each factor, as a place in the vocabulary.  # (N, 3, 64, 64) → {factor: (N,)}"""
        found: dict[str, list[Tensor]] = {}
        for some in pictures.split(BATCH):
            for name, scores in split(self._network(normalise(some.to(self._device)))).items():
                found.setdefault(name, []).append(scores.argmax(1).cpu())
        return {name: torch.cat(rows) for name, rows in found.items()}
