"""The checkpoints of OpenAI's diffusion releases: Improved DDPM and ADM (guided diffusion)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators import locations
from counterfoil.parts.generators.diffusion import flags as settings
from counterfoil.parts.generators.diffusion.adm_network import AdmUNet
from counterfoil.parts.generators.diffusion.flags import Flags
from counterfoil.parts.generators.diffusion.formats import Formats
from counterfoil.parts.generators.diffusion.generator import Denoising, DiffusionGenerator, Gradient, Noising
from counterfoil.parts.generators.diffusion.process import Process


class AdmDenoiser:
    """A network of the releases."""

    def __init__(self, network: AdmUNet, flags: Flags, *, sha256: str = "") -> None:
        self.network = network.eval().requires_grad_(False)
        self._formats = Formats(self.network)
        self.flags, self.sha256, self.size = flags, sha256, flags.image_size
        self.classes = None if network.label_emb is None else network.label_emb.num_embeddings
        self.process = Process(signal_left(flags), "sample" if flags.predict_xstart else "epsilon")

    def guess(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """The network's answer; a learned variance beside it is left out."""
        if self.flags.rescale_timesteps:  # the network always counts to 1000
            times = times * (1000 / self.flags.diffusion_steps)
        network = self._formats.asked(noisy)
        with torch.autocast(noisy.device.type, enabled=False):
            kind = next(network.parameters()).dtype
            answer: Tensor = network(noisy.to(kind), times, None if self.classes is None else classes)
        return answer[:, :3]

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        self._formats.forget()
        self.network.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The flags and the hash of the weights."""
        return {"network": repr(self.flags), "weights": self.sha256}


def adm(
    rest: str,
    *,
    flags: str | Mapping[str, Any] | None = None,
    strength: float = Denoising.strength,
    steps: int = Denoising.steps,
    moves: int = Denoising.moves,
    noising: Noising = Denoising.noising,
    gradient: Gradient = Denoising.gradient,
    class_numbers: Sequence[int] | None = None,
    sha256: str | None = None,
) -> DiffusionGenerator:
    """Guided denoising with a checkpoint of OpenAI's Improved DDPM or ADM (guided diffusion) releases.

    `rest` is the checkpoint (.pt or .safetensors): a path, a file on the hub, or a URL. `flags` are the model and diffusion
    flags of its release, as in '--image_size 64 --num_channels 192 …'; a checkpoint with its released name needs none. The
    other options are those of the generator `diffusion`.
    """
    denoising = Denoising(strength=strength, steps=steps, moves=moves, noising=noising, gradient=gradient)
    file = locations.locate(rest, sha256=sha256)
    chosen = settings.read(flags, file=file)
    state = weights.load_state(file)
    with torch.device("meta"):  # no time spent on random numbers: every weight comes from the file
        network = AdmUNet(chosen, classes=_classes(state, chosen, str(file)))
    network.to_empty(device="cpu")
    weights.load_into(network, state, what=str(file))
    denoiser = AdmDenoiser(network, chosen, sha256=weights.file_sha256(file))
    return DiffusionGenerator(denoiser, denoising, class_numbers=class_numbers)


def signal_left(flags: Flags) -> Tensor:
    """The share of the signal left at each time.  # (T,)"""
    count = flags.diffusion_steps
    if flags.noise_schedule == "linear":
        scale = 1000 / count
        betas = torch.linspace(scale * 1e-4, scale * 0.02, count, dtype=torch.float64)
    else:
        wave = [math.cos((step / count + 0.008) / 1.008 * math.pi / 2) ** 2 for step in range(count + 1)]
        falls = [min(1 - after / before, 0.999) for before, after in pairwise(wave)]
        betas = torch.tensor(falls, dtype=torch.float64)
    return (1 - betas).cumprod(0).float()


def _classes(state: Mapping[str, Tensor], flags: Flags, file: str) -> int | None:
    """How many classes the checkpoint tells apart."""
    if not flags.class_cond:
        return None
    if "label_emb.weight" not in state:
        raise BadWeights(f"{file}: class_cond is set, and the weights have no label_emb.weight; take class_cond out of the flags")
    return len(state["label_emb.weight"])
