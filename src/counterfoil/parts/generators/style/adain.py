"""Style transfer by adaptive instance normalisation (Huang and Belongie, 2017): encoder, decoder and feature statistics.

The encoder is VGG-19 up to its tenth convolution, the decoder its mirror image. What a picture shows lies in the pattern
of its features; how it looks lies in each channel's mean and spread. A picture in another style has its own pattern and
the other one's statistics. Layers are numbered as in the published weights, so that those load by name.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from counterfoil.parts import weights

CHANNELS = 512
FACTOR = 8  # pixels a side for one feature
DOWN = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512)  # channels of each convolution; 0 halves the side
UP = (256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64)  # 0 doubles the side
EPSILON = 1e-5


def encoder() -> nn.Sequential:
    """Pictures in [0, 1] to features.  # (N, 3, H, W) → (N, 512, H / 8, W / 8)"""
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]  # turns colours into what VGG was trained on
    width = 3
    for channels in DOWN:
        layers += _convolution(width, channels) if channels else [nn.MaxPool2d(2, ceil_mode=True)]
        width = channels or width
    return nn.Sequential(*layers)


def decoder() -> nn.Sequential:
    """Features to pictures, about in [0, 1].  # (N, 512, h, w) → (N, 3, 8 h, 8 w)"""
    layers: list[nn.Module] = []
    width = CHANNELS
    for channels in UP:
        layers += _convolution(width, channels) if channels else [nn.Upsample(scale_factor=2, mode="nearest")]
        width = channels or width
    return nn.Sequential(*layers, nn.ReflectionPad2d(1), nn.Conv2d(width, 3, 3))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3), nn.ReLU()]


def load(network: nn.Sequential, file: Path) -> nn.Sequential:
    """The network with the weights of a file, frozen; layers of VGG beyond the network's last one are left out."""
    state = weights.load_state(file)
    beyond = len(network)
    kept = {name: value for name, value in state.items() if not (_layer(name) >= beyond)}
    weights.load_into(network, kept, what=str(file))
    return network.eval().requires_grad_(False)


def _layer(name: str) -> int:
    number = name.partition(".")[0]
    return int(number) if number.isdecimal() else -1


def statistics(features: Tensor) -> Tensor:
    """Mean and standard deviation of every channel.  # (N, C, h, w) → (N, 2, C)"""
    flat = features.flatten(2)
    return torch.stack([flat.mean(2), (flat.var(2) + EPSILON).sqrt()], dim=1)


def plain(features: Tensor, own: Tensor) -> Tensor:
    """Features with mean 0 and spread 1 in every channel: what a picture shows.  # (N, C, h, w), (N, 2, C)"""
    return (features - own[:, 0, :, None, None]) / own[:, 1, :, None, None]


def dressed(pattern: Tensor, look: Tensor) -> Tensor:
    """The pattern with other means and spreads.  # (N, C, h, w), (N, 2, C)"""
    return pattern * look[:, 1, :, None, None] + look[:, 0, :, None, None]
