"""Writes vqgan-reference.safetensors and adm-reference.safetensors: what the authors' own code makes of small networks.

Run where their code is importable (taming-transformers, from its repository for the Gumbel codebook; improved-diffusion and
guided-diffusion):

    python -m tests.generators.make_references
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.generators.named_weights import named_pictures, named_weights, normal
from tests.generators.small import ADMS, VQGANS

VQGAN_FILE = Path(__file__).with_name("vqgan-reference.safetensors")


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


def write_vqgan() -> None:
    found = {}
    for kind, params in VQGANS.items():
        network = authors_network(kind, params)
        network.load_state_dict(named_weights(network.state_dict()))
        for name, tensor in through(network, named_pictures(2, 16)).items():
            found[f"{kind}.{name}"] = tensor.contiguous()
    save_file(found, VQGAN_FILE)


ADM_FILE = Path(__file__).with_name("adm-reference.safetensors")


def inputs(case: str) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy images, times and classes."""
    times = torch.tensor([3, ADMS[case].get("diffusion_steps", 1000) * 2 // 3])
    return normal(2, "noisy", 3, 16, 16), times, torch.tensor([7, 999])


def write_adm() -> None:
    found = {}
    for case, flags in ADMS.items():
        package = "improved_diffusion" if case.startswith("improved") else "guided_diffusion"
        scripts = import_module(f"{package}.script_util")
        model, process = scripts.create_model_and_diffusion(**{**scripts.model_and_diffusion_defaults(), **flags})
        model.load_state_dict(named_weights(model.state_dict()))
        noisy, times, classes = inputs(case)
        told = {"y": classes} if flags.get("class_cond") else {}
        with torch.no_grad():
            found[f"{case}.guess"] = process._wrap_model(model.eval())(noisy, times, **told)
        clean = process.p_mean_variance(model, noisy, times, clip_denoised=True, model_kwargs=told)["pred_xstart"]
        found[f"{case}.clean"] = clean.detach()
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, ADM_FILE)


if __name__ == "__main__":
    write_vqgan()
    write_adm()
