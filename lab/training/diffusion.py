"""The painter and editor: a diffusers StableDiffusionPipeline over the autoencoder's latents (Rombach et al., 2022).

Velocity prediction (Salimans and Ho, 2022) with the loss weighted by min(SNR, 5) (Hang et al., 2023). Captions are
left out now and then for classifier-free guidance, and shortened at random so that short prompts work. The text encoder is
trained with the network it speaks to.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from lab.training.clip import text_configuration
from lab.training.data import Columns, Pool, PoolSize, scene_pool
from lab.training.formats import save_half
from lab.training.loop import Run, Schedule, fit
from lab.training.wording import Habits, Wording, caption_tokenizer
from torch import Tensor, nn
from transformers import CLIPTextModel

from counterfoil.core.errors import BadWeights
from counterfoil_lab.checker import normalise

AUTOENCODER = "diffusion/vae"
"""Place of the autoencoder below a folder of the lab's models."""


@dataclass(frozen=True)
class Diffusion:
    """The pipeline's size and how its captions are worded."""

    widths: tuple[int, ...] = (112, 128)
    heads: tuple[int, ...] = (7, 8)
    layers: int = 2
    text_width: int = 128
    text_depth: int = 3
    groups: int = 16
    habits: Habits = Habits(full=0.75, single=0.15, unknown=0.02)
    empty: float = 0.1
    """Share of captions left out."""
    schedule: Schedule = Schedule(steps=9_000, batch=512, learning_rate=6e-4, weight_decay=0.01, warmup=500, averaging=0.9995)
    pool: PoolSize = PoolSize(start=16_384, capacity=1_048_576, chunk=4_096, fresh=0.15)


class Denoiser(nn.Module):
    """The two networks that are trained together."""

    def __init__(self, unet: UNet2DConditionModel, text: CLIPTextModel) -> None:
        super().__init__()
        self.unet = unet
        self.text = text


def train(run: Run, recipe: Diffusion) -> None:
    """Train the denoiser over an autoencoder that was trained before and write the whole pipeline."""
    found = _autoencoder(run)
    autoencoder = AutoencoderKL.from_pretrained(found).to(run.device).requires_grad_(False)
    pool = _latent_pool(run, autoencoder, size=recipe.pool)
    wording = Wording(run.device)
    scheduler = noise_scheduler()
    kept = scheduler.alphas_cumprod.to(run.device)  # (1000,) share of the signal left at each time
    model = (_read(run.out) if run.resumes else _fresh(recipe, autoencoder)).to(run.device).train()
    batch = recipe.schedule.batch

    @run.compile
    def denoise(noisy: Tensor, times: Tensor, tokens: Tensor) -> Tensor:
        with run.autocast():
            words = model.text(tokens).last_hidden_state
            velocity: Tensor = model.unet(noisy, times, words).sample
        return velocity.float()

    def loss(progress: float) -> dict[str, Tensor]:
        columns = pool.batch(batch)
        mean, spread = columns["means"].float(), columns["deviations"].float()
        latents = (mean + spread * torch.randn_like(mean)) * autoencoder.config.scaling_factor
        tokens = wording.tokens(
            columns["factors"].long(), wording.draw_stated(batch, recipe.habits), unknown=recipe.habits.unknown
        )
        left_out = torch.rand(batch, 1, device=run.device) < recipe.empty
        tokens = torch.where(left_out, wording.empty(batch), tokens)
        times = torch.randint(len(kept), (batch,), device=run.device)
        noise = torch.randn_like(latents)
        signal, ruin = kept[times].sqrt().view(-1, 1, 1, 1), (1 - kept[times]).sqrt().view(-1, 1, 1, 1)
        velocity = denoise(signal * latents + ruin * noise, times, tokens)
        error = (velocity - (signal * noise - ruin * latents)).square().mean(dim=(1, 2, 3))
        ratio = kept[times] / (1 - kept[times])
        return {"loss": (error * ratio.clamp(max=5) / (ratio + 1)).mean(), "error": error.mean()}

    def save(averaged: nn.Module) -> None:
        assert isinstance(averaged, Denoiser)
        write_pipeline(run.out, averaged, autoencoder)

    fit(model, loss, run=run, recipe=recipe, save=save, built_on={AUTOENCODER: found})


def noise_scheduler() -> DDIMScheduler:
    """The scheduler that training and sampling share."""
    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        prediction_type="v_prediction",
    )


def write_pipeline(folder: Path, denoiser: Denoiser, autoencoder: AutoencoderKL) -> None:
    """Write the folder that `StableDiffusionPipeline.from_pretrained` reads."""
    pipeline = StableDiffusionPipeline(
        vae=autoencoder,
        text_encoder=denoiser.text,
        tokenizer=caption_tokenizer(),
        unet=denoiser.unet,
        scheduler=noise_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )
    pipeline.save_config(folder)
    pipeline.tokenizer.save_pretrained(folder / "tokenizer")
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    save_half(autoencoder, folder / "vae")
    save_half(denoiser.text, folder / "text_encoder")
    save_half(denoiser.unet, folder / "unet")


def _autoencoder(run: Run) -> Path:
    """The folder of the autoencoder: the pipeline's own where training continues, one that was trained before otherwise."""
    found = run.out / "vae" if run.resumes else run.find(AUTOENCODER)
    if found is None or not (found / "config.json").is_file():
        where = ", ".join(map(str, run.weights)) or "no folder"
        raise BadWeights(f"{run.name} paints over an autoencoder and found none ({where} searched); train 'autoencoder' first")
    return found


def _read(folder: Path) -> Denoiser:
    unet = UNet2DConditionModel.from_pretrained(folder / "unet").float()
    return Denoiser(unet, CLIPTextModel.from_pretrained(folder / "text_encoder").float())


def _fresh(recipe: Diffusion, autoencoder: AutoencoderKL) -> Denoiser:
    levels = len(recipe.widths)
    unet = UNet2DConditionModel(
        sample_size=autoencoder.config.sample_size // 2 ** (len(autoencoder.config.block_out_channels) - 1),
        in_channels=autoencoder.config.latent_channels,
        out_channels=autoencoder.config.latent_channels,
        down_block_types=("CrossAttnDownBlock2D",) * levels,
        up_block_types=("CrossAttnUpBlock2D",) * levels,
        block_out_channels=recipe.widths,
        layers_per_block=recipe.layers,
        cross_attention_dim=recipe.text_width,
        attention_head_dim=recipe.heads,
        norm_num_groups=recipe.groups,
    )
    return Denoiser(unet, CLIPTextModel(text_configuration(recipe.text_width, recipe.text_depth, recipe.text_width)))


def _latent_pool(run: Run, autoencoder: AutoencoderKL, *, size: PoolSize) -> Pool:
    """A pool of scenes as the autoencoder sees them: the mean and the deviation of each image's latents."""

    def encode(images: Tensor, factors: Tensor) -> Columns:
        with run.autocast():
            found = autoencoder.encode(normalise(images)).latent_dist
        return {"means": found.mean.half(), "deviations": found.std.half()}

    return scene_pool(run, size=size, keep=encode)
