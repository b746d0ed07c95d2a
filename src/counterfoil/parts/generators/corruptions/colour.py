"""Colour and light: brightness, contrast, hue and saturation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from counterfoil.parts.generators import draws

LUMA = (0.299, 0.587, 0.114)


def brightness(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """More light, up to half the range."""
    return images + 0.5 * severity


def contrast(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Less contrast, down to a twentieth."""
    return torch.lerp(images, images.mean((2, 3), keepdim=True), 0.95 * severity)


def hue(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """All colours turned about the grey axis by up to 90 degrees, to the side that the seed gives. Grey stays grey."""
    angle = severity * draws.sign(seeds, "hue") * math.radians(90)
    mean = images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    across = torch.cat([blue - green, red - blue, green - red], dim=1) / math.sqrt(3)  # a quarter turn of the colours
    return mean + (images - mean) * angle.cos() + across * angle.sin()


def saturation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Colours faded to grey, or up to three times as strong, as the seed says. Grey stays grey."""
    factor = 1 + severity * torch.where(draws.sign(seeds, "saturation") < 0, -1.0, 2.0)
    grey = luma(images)
    return grey + (images - grey) * factor


def luma(images: Tensor) -> Tensor:
    """How light each pixel looks.  # (N, 3, H, W) → (N, 1, H, W)"""
    weights = torch.tensor(LUMA, device=images.device).reshape(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)
