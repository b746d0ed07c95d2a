"""Reconstruct, step in pixels, reconstruct again: no gradient through the generator that reconstructs.

The cheap relative of latent ascent that discrete adversarial training uses (Mao et al., 2022). A step is taken on the
pixels of the plain reconstruction, and what comes of it is reconstructed again, which leaves of it only what the
other generator can express. With one Euclidean step of 0.1, as published:

    generator: reconstruct:vqgan:logs/vqgan_imagenet_f16_16384
    search:    {norm: l2, unit: absolute, step: 0.1, budget: 1}
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator, Movable, State, provenance_of


class ReconstructGenerator(Movable):
    """Moves pixels, and puts every moved image through another generator's plain reconstruction."""

    moving = "pixels"
    step_size = 0.002  # half a grey level

    def __init__(self, inner: Generator) -> None:
        self.inner, self.size = inner, inner.size

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The plain reconstructions."""
        return {
            "pixels": self._reconstruct(images, labels, seeds),
            "label": labels.clone(),
            "seed": seeds.clone(),
            "scale": torch.ones(len(images), device=images.device),
        }

    def render(self, state: State) -> Tensor:
        return state["pixels"]

    def step(self, state: State, signal: Tensor) -> State:
        moved = (state["pixels"] + signal).clamp(0, 1)
        return {**state, "pixels": self._reconstruct(moved, state["label"], state["seed"])}

    def provenance(self) -> dict[str, str]:
        return {"reconstructs": type(self.inner).__name__, **provenance_of(self.inner)}

    @torch.no_grad()
    def _reconstruct(self, images: Tensor, labels: Tensor, seeds: Tensor) -> Tensor:
        return self.inner.render(self.inner.start(images, labels, seeds)).float()


def reconstruct(rest: str, **options: Any) -> ReconstructGenerator:
    """Reconstruct, one step in pixels, reconstruct again: reconstruct:vqgan:PATH, without gradients through the autoencoder.

    `rest` names any other generator and the options are that one's.
    """
    if not rest:
        raise BadSpec("reconstruct: name the generator that reconstructs, as in reconstruct:autoencoder:FOLDER")
    return ReconstructGenerator(registry.create("generator", rest, options))
