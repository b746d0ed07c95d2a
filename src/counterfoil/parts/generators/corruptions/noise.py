"""Noise: Gaussian, shot and impulse. The pattern is fixed by the seed; severity is its strength."""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.parts.generators import draws
from counterfoil.parts.generators.straight import straight_through


def gaussian_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Additive normal noise, as of a sensor in low light; standard deviation up to 0.38."""
    return images + 0.38 * severity * draws.normal(seeds, "gaussian noise", *images.shape[1:])


def shot_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Noise of counting photons, down to three at full brightness; the Poisson law by its normal approximation."""
    brightness = (images + 1e-4).sqrt()  # the small term keeps the gradient finite in black
    return images + severity / 3**0.5 * brightness * draws.normal(seeds, "shot noise", *images.shape[1:])


def impulse_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Values that jump to black or white, up to 27 % of them.

    Whether a value jumps is a threshold; the gradient is that of the expected picture, which is linear in the rate.
    """
    rate = 0.27 * severity
    order = draws.uniform(seeds, "impulse order", *images.shape[1:])
    target = (draws.uniform(seeds, "impulse target", *images.shape[1:]) < 0.5).float()
    jumps = (order < rate).float()
    seen = torch.lerp(images, target, jumps)
    return straight_through(seen, seen + (rate - rate.detach()) * (target - images).detach())
