"""The painter's autoencoder: a diffusers AutoencoderKL, 64×64 images to 16×16×4 latents (Rombach et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from lab.training.attributes import PerceptualLoss
from lab.training.data import Pool, PoolSize, scene_pool, to_floats
from lab.training.formats import SIDE, place, save_half
from lab.training.loop import Run, Schedule, fit
from torch import Tensor, nn

from counterfoil_lab.checker import normalise


@dataclass(frozen=True)
class Autoencoder:
    """The autoencoder's size and losses."""

    widths: tuple[int, ...] = (32, 64, 112)
    latent_channels: int = 4
    groups: int = 8
    divergence: float = 2e-5
    """Weight of the pull of the latents towards a unit Gaussian."""
    perceptual: float = 0.1
    perceptual_from: float = 0.3
    """The share of training after which the perceptual loss joins in, if the checker has been trained."""
    schedule: Schedule = Schedule(steps=8_800, batch=128, learning_rate=1e-3, weight_decay=0.0)
    pool: PoolSize = PoolSize()


def train(run: Run, recipe: Autoencoder) -> None:
    """Train the autoencoder; its scaling factor makes the latents of unit deviation."""
    pool = scene_pool(run, size=recipe.pool)
    model: Any = AutoencoderKL.from_pretrained(run.out) if run.resumes else _fresh(recipe)
    model = place(model, run.device).train()
    encode, decode = run.compile(model.encoder), run.compile(model.decoder)
    checker = run.earlier("attributes")
    look = PerceptualLoss(checker["attributes"], run=run, begins=recipe.perceptual_from)
    batch = recipe.schedule.batch

    def loss(progress: float) -> dict[str, Tensor]:
        images = to_floats(pool.batch(batch)["images"]).contiguous(memory_format=torch.channels_last)
        with run.autocast():
            mean, spread = model.quant_conv(encode(normalise(images))).float().chunk(2, dim=1)
            spread = spread.clamp(-30, 20)
            latents = mean + torch.exp(0.5 * spread) * torch.randn_like(mean)
            made = decode(model.post_quant_conv(latents)).float() / 2 + 0.5
            seen = look(progress, made, images)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).mean()
        pixels = F.l1_loss(made, images) + 2 * F.mse_loss(made, images)
        total = pixels + recipe.perceptual * seen + recipe.divergence * divergence
        return {"loss": total, "psnr": psnr(made, images), "perceptual": seen, "divergence": divergence}

    def save(averaged: nn.Module) -> None:
        averaged.register_to_config(scaling_factor=_scaling(averaged, pool))  # type: ignore[operator]
        save_half(averaged, run.out)

    fit(model, loss, run=run, recipe=recipe, save=save, built_on=checker)


def psnr(made: Tensor, wanted: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, of each image, then the mean.  # (N, 3, H, W) in [0, 1] → ()"""
    error = (made.clamp(0, 1) - wanted).square().flatten(1).mean(1)
    return (-10 * torch.log10(error.clamp(min=1e-10))).mean()


def _fresh(recipe: Autoencoder) -> AutoencoderKL:
    levels = len(recipe.widths)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        block_out_channels=recipe.widths,
        layers_per_block=1,
        latent_channels=recipe.latent_channels,
        norm_num_groups=recipe.groups,
        sample_size=SIDE,
        force_upcast=False,
    )


@torch.no_grad()
def _scaling(model: nn.Module, pool: Pool) -> float:
    images = normalise(to_floats(pool.batch(256)["images"]))
    return 1 / float(model.encode(images).latent_dist.mean.std())  # type: ignore[operator]
