"""Writes reference.safetensors: what the VQGAN authors' own code makes of small networks with named weights.

Run where their package is importable (taming-transformers; the Gumbel codebook is only in their repository):

    python -m tests.generators.vqgan.make_reference
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.generators.named_weights import named_pictures, named_weights
from tests.generators.vqgan.conftest import PARAMS

FILE = Path(__file__).with_name("reference.safetensors")


def authors_network(kind: str, params: dict[str, Any]) -> nn.Module:
    """The authors' modules put together as in their VQModel and GumbelVQ."""
    from taming.modules.diffusionmodules.model import Decoder, Encoder
    from taming.modules.vqvae import quantize

    shape, width = params["ddconfig"], params["embed_dim"]
    network = nn.Module()
    network.encoder, network.decoder = Encoder(**shape), Decoder(**shape)
    network.quant_conv = nn.Conv2d(shape["z_channels"], width, 1)
    network.post_quant_conv = nn.Conv2d(width, shape["z_channels"], 1)
    if kind == "GumbelVQ":
        network.quantize = quantize.GumbelQuantize(shape["z_channels"], width, n_embed=params["n_embed"])
    else:
        network.quantize = quantize.VectorQuantizer(params["n_embed"], width, beta=0.25)
    return network.eval()


def most_probable(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 0, dim: int = -1) -> Tensor:
    """In place of drawing from the Gumbel distribution: its most probable outcome."""
    return torch.zeros_like(logits).scatter_(dim, logits.argmax(dim, keepdim=True), 1.0)


@torch.no_grad()
def through(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Images through the authors' encoder, codebook and decoder."""
    drawn, F.gumbel_softmax = F.gumbel_softmax, most_probable
    try:
        latents = network.quant_conv(network.encoder(images * 2 - 1))
        codes, _, (_, _, indices) = network.quantize(latents)
        decoded = network.decoder(network.post_quant_conv(codes))
    finally:
        F.gumbel_softmax = drawn
    return {"latents": latents, "indices": indices.reshape(len(images), *latents.shape[2:]), "decoded": decoded}


def main() -> None:
    found = {}
    for kind, params in PARAMS.items():
        network = authors_network(kind, params)
        network.load_state_dict(named_weights(network.state_dict()))
        for name, tensor in through(network, named_pictures(2, 16)).items():
            found[f"{kind}.{name}"] = tensor.contiguous()
    save_file(found, FILE)


if __name__ == "__main__":
    main()
