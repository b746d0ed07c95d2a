"""How long the lab's generators take on a CPU with two threads: the costs that the demo lives on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import torch
from diffusers import StableDiffusionPipeline
from torch import Tensor, nn

from counterfoil.generators.autoencoders import VectorAutoencoder
from counterfoil.generators.latent import LatentGenerator

THREADS = 2
REPEATS = 5


def latent_step(model: nn.Module, *, batch: int = 32) -> Tensor:
    """Milliseconds an image of rendering and going back to the latent, as the search does: the fastest of several times."""
    model = deepcopy(model).cpu()
    generator = LatentGenerator(VectorAutoencoder(model))
    side = model.config.sample_size // 2 ** (len(model.config.block_out_channels) - 1)  # type: ignore
    latents = torch.randn(batch, model.config.vq_embed_dim, side, side, requires_grad=True)  # type: ignore
    times = []
    with _threads(THREADS):
        for _ in range(REPEATS + 1):
            begun = time.perf_counter()
            generator.render({"latent": latents}).square().mean().backward()
            times.append(1000 * (time.perf_counter() - begun) / batch)
    # Whatever else the machine does only adds to a time.
    return torch.tensor([min(times[1:])])


def painting(folder: Path, *, steps: int, guidance: float) -> Tensor:
    """Seconds to paint one picture: the fastest of several times."""
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    times = []
    with _threads(THREADS):
        for _ in range(REPEATS):
            begun = time.perf_counter()
            pipeline("a photo of a red wool dress on a beach", num_inference_steps=steps, guidance_scale=guidance)
            times.append(time.perf_counter() - begun)
    return torch.tensor([min(times)])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
