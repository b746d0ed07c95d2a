"""Unconditional and class-conditional diffusion models in diffusers layout: a UNet2DModel and its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators import checkpoints
from counterfoil.parts.generators.diffusion.formats import Formats
from counterfoil.parts.generators.diffusion.generator import Denoising, DiffusionGenerator, Gradient, Noising
from counterfoil.parts.generators.diffusion.process import Process

SCHEDULER = "scheduler_config.json"
FILES = [
    *(f"{folder}{SCHEDULER}" for folder in ("", "scheduler/")),
    *(f"{folder}{name}" for folder in ("", "unet/") for name in (checkpoints.CONFIG, checkpoints.WEIGHTS)),
]
"""A pipeline keeps its network and its scheduler in folders of their own; old ones keep both at the top."""


class UNetDenoiser(checkpoints.Network):
    """A diffusers UNet2DModel."""

    def __init__(self, network: Any, process: Process, *, sha256: str = "") -> None:
        super().__init__(network, sha256=sha256)
        self.process = process
        self._formats = Formats(self.network)
        self.size = int(network.config.sample_size)
        self.classes: int | None = network.config.num_class_embeds if network.class_embedding is not None else None

    def guess(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """The network's answer; a learned variance beside it is left out."""
        labels = None if self.classes is None else classes
        network = self._formats.asked(noisy)
        with torch.autocast(noisy.device.type, enabled=False):
            answer: Tensor = network(noisy.to(network.dtype), times, class_labels=labels).sample[:, :3]
        return answer

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        self._formats.forget()
        return super().to(device)

    def provenance(self) -> dict[str, str]:
        """The network, and what it predicts."""
        return {**super().provenance(), "prediction": self.process.prediction}


def diffusion(
    rest: str,
    *,
    strength: float = Denoising.strength,
    steps: int = Denoising.steps,
    moves: int = Denoising.moves,
    noising: Noising = Denoising.noising,
    gradient: Gradient = Denoising.gradient,
    class_numbers: Sequence[int] | None = None,
    sha256: str | None = None,
    revision: str | None = None,
) -> DiffusionGenerator:
    """Guided denoising with a diffusers UNet2DModel (DDPM and DDIM pipelines), from a folder or the hub.

    Pictures are noised to `strength` and taken back down in `steps` levels with `moves` guided steps at each, so a search
    wants the budget steps × moves. `noising` is random or inversion; `gradient` is guess or, at a multiple of the cost,
    chain. `class_numbers` are the network's numbers for the classes of the data, where it is class-conditional.
    """
    denoising = Denoising(strength=strength, steps=steps, moves=moves, noising=noising, gradient=gradient)
    folder = checkpoints.folder_of(rest, FILES, revision=revision)
    nested = folder / "unet"
    found = checkpoints.open_folder(nested if nested.is_dir() else folder)
    _check(found)
    process = read_scheduler(folder)
    denoiser = UNetDenoiser(checkpoints.load(found, sha256), process, sha256=weights.file_sha256(found.weights))
    return DiffusionGenerator(denoiser, denoising, class_numbers=class_numbers)


def read_scheduler(folder: Path) -> Process:
    """The process that the scheduler in a pipeline's folder describes."""
    from diffusers import DDIMScheduler

    path = next((place for place in (folder / "scheduler" / SCHEDULER, folder / SCHEDULER) if place.is_file()), None)
    if path is None:
        raise BadWeights(f"{folder}: no {SCHEDULER} in it or in its folder scheduler; give the folder of a whole pipeline")
    config = checkpoints.read_json(path)
    if not {"beta_schedule", "beta_start", "trained_betas"} & set(config):
        raise BadPart(f"{path}: describes no noise by betas; schedulers of the DDPM and DDIM family can be used")
    # Only the settings of training count, and schedulers of that family write them alike: how to sample is decided here.
    scheduler = DDIMScheduler.from_config(config)
    limit = float(scheduler.config.clip_sample_range) if scheduler.config.clip_sample else None
    return Process(scheduler.alphas_cumprod.float(), scheduler.config.prediction_type, limit)


def _check(found: checkpoints.Checkpoint) -> None:
    config = found.config
    if config.get("_class_name") != "UNet2DModel":
        raise BadPart(f"{found.folder}: config.json names the class {config.get('_class_name')!r}; a UNet2DModel is needed")
    if config.get("in_channels", 3) != 3 or config.get("out_channels", 3) not in (3, 6):
        raise BadPart(
            f"{found.folder}: takes {config.get('in_channels')} channels and gives {config.get('out_channels')}; "
            "pictures have three, and six are three with their variance"
        )
    if not isinstance(config.get("sample_size"), int):
        raise BadPart(f"{found.folder}: sample_size is {config.get('sample_size')!r}; the side of its square pictures is needed")
    if config.get("class_embed_type") is not None or config.get("time_embedding_type", "positional") != "positional":
        raise BadPart(f"{found.folder}: classes or times are embedded in another way than the DDPM family's; it cannot be used")
