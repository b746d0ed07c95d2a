"""Latent ascent over the VQGAN authors' own checkpoints."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts import weights
from counterfoil.parts.generators.latent import LatentGenerator, Space
from counterfoil.parts.generators.sides import check_side, must_divide
from counterfoil.parts.generators.vqgan import checkpoint, configuration
from counterfoil.parts.generators.vqgan.codebooks import GumbelCodes
from counterfoil.parts.generators.vqgan.network import Vqgan


class VqganAutoencoder:
    """A VQGAN between pictures in [0, 1] and codes."""

    def __init__(self, network: Vqgan, *, factor: int, sha256: str = "") -> None:
        self.network = network.eval().requires_grad_(False)
        self.factor, self.sha256 = factor, sha256

    def encode(self, images: Tensor) -> Tensor:
        """Latents before quantisation.  # (N, 3, H, W) in [0, 1] → (N, D, H / factor, W / factor)"""
        self.check(images)
        return self.network.encode(images * 2 - 1)

    def check(self, images: Tensor) -> None:
        """Raise BadSpec unless the pictures come out as whole codes."""
        height, width = images.shape[-2:]
        if height % self.factor or width % self.factor:
            raise BadSpec(f"pictures of {width} by {height} pixels: {must_divide(self.factor, width)}")

    def quantise(self, latents: Tensor) -> Tensor:
        """The codes of latents, in the same shape."""
        codes: Tensor = self.network.quantize(latents)
        return codes

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of codes; they may overshoot [0, 1]."""
        return (self.network.decode(latents) + 1) / 2

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        self.network.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The kind of codebook and the hash of the weights."""
        return {"network": f"VQGAN, {type(self.network.quantize).__name__}", "weights": self.sha256}


class GumbelVqganAutoencoder(VqganAutoencoder):
    """A VQGAN with a Gumbel codebook, whose gradient goes through the expected code."""

    def relax(self, latents: Tensor) -> Tensor:
        """The expected code of latents."""
        assert isinstance(self.network.quantize, GumbelCodes)
        return self.network.quantize.expected(latents)


def vqgan(
    rest: str, *, config: str | None = None, sha256: str | None = None, space: Space = "before", size: int | None = None
) -> LatentGenerator:
    """Latent ascent over a VQGAN checkpoint of its authors (taming-transformers), plain or Gumbel.

    `rest` is the checkpoint (.ckpt or .safetensors): a path, a file on the hub, a URL, or the folder that training left.
    `config` is its YAML configuration, by default the one beside it; `size` is the side of the pictures, by default the
    one of the configuration.
    """
    file, settings = checkpoint.find(rest, config=config, sha256=sha256)
    shape = configuration.read(settings)
    side = shape.resolution if size is None else check_side(size, factor=shape.factor)
    with torch.device("meta"):  # no time spent on random numbers: every weight comes from the file
        network = Vqgan(shape)
    network.to_empty(device="cpu")
    weights.load_into(network, checkpoint.load(file), what=str(file))
    kind = GumbelVqganAutoencoder if shape.gumbel else VqganAutoencoder
    loaded = kind(network, factor=shape.factor, sha256=weights.file_sha256(file))
    return LatentGenerator(loaded, space=space, size=side)
