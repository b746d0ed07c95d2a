"""Generators: small networks with fixed weights in every layout that is read, and a module of one's own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.worlds import folder as photos

OWN_MODULE = """
import torch
from torch import nn

from tests.fakes import TinyAutoencoder


class Painter(nn.Module):
    latent_shape, size = (6,), 16

    def decode(self, latents):
        waves = torch.sin(torch.arange(6 * 768).float()).reshape(6, 768).to(latents.device)
        return torch.sigmoid(latents @ waves).reshape(-1, 3, 16, 16)


def coder():
    return TinyAutoencoder()
"""


def _autoencoder(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.conftest import save_network

    return f"autoencoder:{save_network(folder, 'VQModel')}", {}


def _reconstruct(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.conftest import save_network

    return f"reconstruct:autoencoder:{save_network(folder, 'AutoencoderKL')}", {}


def _vqgan(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.vqgan.conftest import save_run

    return f"vqgan:{save_run(folder)}", {}


def _vdvae(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.vdvae.conftest import save_checkpoint

    return f"vdvae:{save_checkpoint(folder / 'run')}", {}


def _stylegan_xl(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.stylegan import save_stylegan

    return f"stylegan_xl:{save_stylegan(folder / 'run')}", {"classes": ["one", "two", "three"], "steps": 3}


def _diffusion(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.diffusion.conftest import save_pipeline

    return f"diffusion:{save_pipeline(folder)}", {"steps": 3}


def _adm(folder: Path, stack: ExitStack) -> Any:
    from tests.generators.diffusion.conftest import save_adm
    from tests.generators.diffusion.make_reference import CASES

    small = {"image_size": 16, "channel_mult": "1,2", "attention_resolutions": "8"}
    return f"adm:{save_adm(folder, 'improved', **small)}", {"flags": {**CASES["improved"], **small}, "steps": 3}


def _style(folder: Path, stack: ExitStack) -> Any:
    from safetensors.torch import save_file

    from counterfoil.parts.generators.style import build_decoder, build_encoder
    from tests.generators.named_weights import named_weights

    for name, network in (("encoder", build_encoder()), ("decoder", build_decoder())):
        state = {key: value * (2**0.5 if value.dim() > 1 else 1) for key, value in named_weights(network.state_dict()).items()}
        if name == "decoder":
            state["28.bias"] += 0.5  # about mid-grey
        save_file(state, folder / f"{name}.safetensors")
    weights = {name: str(folder / f"{name}.safetensors") for name in ("encoder", "decoder")}
    return f"style:{photos(folder / 'styles')}", {**weights, "styles": 1}


def _own(folder: Path, function: str) -> str:
    (folder / "mine.py").write_text(OWN_MODULE)
    return f"{folder / 'mine.py'}:{function}"


RECIPES: dict[tuple[str, str], Any] = {
    ("generator", "autoencoder"): _autoencoder,
    ("generator", "pixels"): lambda folder, stack: ("pixels:l2", {"epsilon": 0.5}),
    ("generator", "transforms"): lambda folder, stack: ("transforms:brightness,rotation,defocus-blur", {}),
    ("generator", "vqgan"): _vqgan,
    ("generator", "vdvae"): _vdvae,
    ("generator", "stylegan_xl"): _stylegan_xl,
    ("generator", "diffusion"): _diffusion,
    ("generator", "adm"): _adm,
    ("generator", "style"): _style,
    ("generator", "gan"): lambda folder, stack: (f"gan:{_own(folder, 'Painter')}", {"steps": 3, "candidates": 2}),
    ("generator", "python"): lambda folder, stack: (f"python:{_own(folder, 'coder')}", {}),
    ("generator", "reconstruct"): _reconstruct,
    ("generator", "lab"): lambda folder, stack: ("lab:kl", {}),
    ("generator", "brightness"): lambda folder, stack: ("brightness:", {}),
}
