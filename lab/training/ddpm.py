"""The pixel diffusion model: a diffusers UNet2DModel in a DDPMPipeline, unconditional, 64×64 (Ho et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from lab.training.data import PoolSize, scene_pool, to_floats
from lab.training.formats import SIDE, save_half
from lab.training.loop import Run, Schedule, fit
from torch import Tensor, nn

from counterfoil_lab.checker import normalise


@dataclass(frozen=True)
class Ddpm:
    """The network's size."""

    widths: tuple[int, ...] = (24, 48, 72, 80)
    groups: int = 8
    heads_width: int = 8
    schedule: Schedule = Schedule(steps=5_100, batch=96, learning_rate=6e-4, weight_decay=0.0, averaging=0.9995)
    pool: PoolSize = PoolSize()


def train(run: Run, recipe: Ddpm) -> None:
    """Train the network to predict the noise and write the pipeline."""
    pool = scene_pool(run, size=recipe.pool)
    scheduler = DDPMScheduler(beta_schedule="squaredcos_cap_v2", clip_sample=True)
    kept = scheduler.alphas_cumprod.to(run.device)  # (1000,)
    model = UNet2DModel.from_pretrained(run.out / "unet").float() if run.resumes else _fresh(recipe)
    model = model.to(run.device, memory_format=torch.channels_last).train()
    predict = run.compile(model)
    batch = recipe.schedule.batch

    def loss(progress: float) -> dict[str, Tensor]:
        images = normalise(to_floats(pool.batch(batch)["images"])).contiguous(memory_format=torch.channels_last)
        times = torch.randint(len(kept), (batch,), device=run.device)
        noise = torch.randn_like(images)
        signal, ruin = kept[times].sqrt().view(-1, 1, 1, 1), (1 - kept[times]).sqrt().view(-1, 1, 1, 1)
        with run.autocast():
            guessed = predict(signal * images + ruin * noise, times).sample.float()
        return {"loss": (guessed - noise).square().mean()}

    def save(averaged: nn.Module) -> None:
        pipeline = DDPMPipeline(unet=averaged, scheduler=scheduler)
        pipeline.save_config(run.out)
        scheduler.save_pretrained(run.out / "scheduler")
        save_half(averaged, run.out / "unet")

    fit(model, loss, run=run, recipe=recipe, save=save)


def _fresh(recipe: Ddpm) -> UNet2DModel:
    plain = len(recipe.widths) - 2
    return UNet2DModel(
        sample_size=SIDE,
        block_out_channels=recipe.widths,
        layers_per_block=1,
        down_block_types=("DownBlock2D",) * plain + ("AttnDownBlock2D",) * 2,
        up_block_types=("AttnUpBlock2D",) * 2 + ("UpBlock2D",) * plain,
        attention_head_dim=recipe.heads_width,
        norm_num_groups=recipe.groups,
    )
