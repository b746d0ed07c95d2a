"""The attribute checker: how well it reads each attribute, and what it reads off pictures that another model made."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from counterfoil.lab.measures.bench import Bench
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.scenes import Scenes
from counterfoil.lab.train.formats import normalise
from counterfoil.lab.vocabulary import FACTORS


def attributes(bench: Bench) -> list[Reading]:
    """Accuracy on each attribute, on scenes and on reconstructions."""
    scenes, images = bench.scenes()
    autoencoder = bench.load(AutoencoderKL, "diffusion", "vae")
    painters = bench.batched(lambda part: (autoencoder(normalise(part)).sample / 2 + 0.5).clamp(0, 1), images)
    return [
        *shares(read_right(bench, images, scenes), "", dict.fromkeys(FACTORS, 97.0)),
        *shares(read_right(bench, bench.decoded(bench.codes(images)), scenes), " after vqgan"),
        *shares(read_right(bench, painters, scenes), " after the painter's autoencoder"),
    ]


def read_right(bench: Bench, images: Tensor, scenes: Scenes) -> dict[str, Tensor]:
    """Whether the checker reads each factor off each picture as its scene has it.  # → {factor: (N,) bool}"""
    return {factor: seen == scenes.factors[factor] for factor, seen in bench.read(images).items()}


def shares(
    right: Mapping[str, Tensor], what: str, targets: Mapping[str, float] | None = None, *, together: float | None = None
) -> list[Reading]:
    """The share read right of each factor, and of all at once."""
    readings = [share(f"{factor}{what}", row, at_least=(targets or {}).get(factor)) for factor, row in right.items()]
    return [*readings, share(f"all attributes{what}", torch.stack(list(right.values())).all(0), at_least=together)]
