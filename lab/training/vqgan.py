"""The generator of the latent search: a diffusers VQModel, 64×64 images to 16×16 codes (Esser et al., 2021).

The codebook follows the encoder by running averages, and codes that nothing uses start again from a latent of the batch, so
that all of them stay in use. The decoder is thin where the image is large: the search decodes and differentiates at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import VQModel
from lab.training.attributes import PerceptualLoss
from lab.training.autoencoder import psnr
from lab.training.data import PoolSize, scene_pool, to_floats
from lab.training.formats import SIDE, place, save_half
from lab.training.loop import Run, Schedule, fit
from torch import Tensor

from counterfoil.parts.fast.codes import nearest_codes
from counterfoil_lab.checker import normalise


@dataclass(frozen=True)
class Vqgan:
    """The VQGAN's size and losses."""

    widths: tuple[int, ...] = (24, 48, 112)
    codes: int = 65536
    code_width: int = 8
    groups: int = 8
    commitment: float = 0.25
    absolute: float = 0.1
    """Weight of the mean absolute error."""
    fidelity: float = 0.03
    """Weight of the logarithm of each image's squared error: a decibel counts the same in plain and in busy images."""
    perceptual: float = 0.006
    perceptual_from: float = 0.3
    continuous_until: float = 0.04
    """The share of training before any quantisation: the codebook then starts from latents that mean something."""
    restart_until: float = 0.7
    schedule: Schedule = Schedule(steps=22_000, batch=192, learning_rate=8e-4, weight_decay=0.0)
    pool: PoolSize = PoolSize()


class Codebook:
    """Quantises latents and moves the codes after them."""

    def __init__(self, codes: Tensor, *, decay: float = 0.99, restart_every: int = 50) -> None:
        self._codes = codes  # (K, D), the VQModel's own weights, changed in place
        self._decay = decay
        self._restart_every = restart_every
        self._counts = torch.ones(len(codes), device=codes.device)
        self._sums = codes.clone()
        self._step = 0

    @torch.no_grad()
    def start_from(self, latents: Tensor) -> None:
        """Set the codes to latents drawn at random."""
        self._codes.copy_(_draw(_rows(latents), len(self._codes)))
        self._sums.copy_(self._codes)
        self._counts.fill_(1)

    def quantise(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest codes and their numbers.  # (N, D, H, W) → (N, D, H, W), (N·H·W,)"""
        rows = _rows(latents.detach())
        nearest = nearest_codes(rows, self._codes)
        count, width, height, breadth = latents.shape
        return self._codes[nearest].view(count, height, breadth, width).permute(0, 3, 1, 2), nearest

    @torch.no_grad()
    def follow(self, latents: Tensor, nearest: Tensor, *, restarts: bool) -> Tensor:
        """Move every code towards the latents it stands for; the share of codes in use."""
        rows = _rows(latents)
        counts = torch.zeros_like(self._counts).index_add_(0, nearest, torch.ones_like(rows[:, 0]))
        sums = torch.zeros_like(self._sums).index_add_(0, nearest, rows)
        self._counts.lerp_(counts, 1 - self._decay)
        self._sums.lerp_(sums, 1 - self._decay)
        self._step += 1
        if restarts and self._step % self._restart_every == 0:
            idle = self._counts < 0.05 * self._counts.mean()
            fresh = _draw(rows, len(self._codes))
            self._sums.copy_(torch.where(idle[:, None], fresh, self._sums))
            self._counts.copy_(torch.where(idle, 1.0, self._counts))
        self._codes.copy_(self._sums / self._counts.clamp(min=1e-3)[:, None])
        return (self._counts > 0.05 * self._counts.mean()).float().mean()


def train(run: Run, recipe: Vqgan) -> None:
    """Train the VQGAN."""
    pool = scene_pool(run, size=recipe.pool)
    model: Any = _grow(VQModel.from_pretrained(run.out), recipe.codes) if run.resumes else _fresh(recipe)
    model = place(model, run.device).train()
    codes = model.quantize.embedding.weight.requires_grad_(False)
    codebook = Codebook(codes)
    quantises = run.resumes

    @run.compile
    def encode(images: Tensor) -> Tensor:
        with run.autocast():
            latents: Tensor = model.quant_conv(model.encoder(normalise(images)))
        return latents.float()

    @run.compile
    def decode(latents: Tensor) -> Tensor:
        with run.autocast():
            made: Tensor = model.decoder(model.post_quant_conv(latents))
        return made.float() / 2 + 0.5

    checker = run.earlier("attributes")
    look = PerceptualLoss(checker["attributes"], run=run, begins=recipe.perceptual_from)
    batch = recipe.schedule.batch

    def loss(progress: float) -> dict[str, Tensor]:
        nonlocal quantises
        images = to_floats(pool.batch(batch)["images"]).contiguous(memory_format=torch.channels_last)
        used = commitment = images.new_zeros(())
        latents = encode(images)
        if not quantises and progress >= recipe.continuous_until:
            codebook.start_from(latents)
            quantises = True
        if quantises:
            nearest_codes, nearest = codebook.quantise(latents)
            commitment = F.mse_loss(latents, nearest_codes)
            used = codebook.follow(latents.detach(), nearest, restarts=progress < recipe.restart_until)
            latents_seen = latents + (nearest_codes - latents).detach()
        else:
            latents_seen = latents
        made = decode(latents_seen)
        with run.autocast():
            seen = look(progress, made, images)
        pixels = recipe.absolute * F.l1_loss(made, images) + recipe.fidelity * log_error(made, images)
        total = pixels + recipe.perceptual * seen + recipe.commitment * commitment
        return {"loss": total, "psnr": psnr(made, images), "perceptual": seen, "commitment": commitment, "used": used}

    fit(model, loss, run=run, recipe=recipe, save=lambda averaged: save_half(averaged, run.out), built_on=checker)


def log_error(made: Tensor, wanted: Tensor) -> Tensor:
    """The mean logarithm of each image's squared error.  # (N, 3, H, W), (N, 3, H, W) → ()"""
    return (made - wanted).square().flatten(1).mean(1).clamp(min=1e-5).log().mean()


def _rows(latents: Tensor) -> Tensor:
    return latents.permute(0, 2, 3, 1).reshape(-1, latents.shape[1])  # (N·H·W, D)


def _draw(rows: Tensor, count: int) -> Tensor:
    return rows[torch.randint(len(rows), (count,), device=rows.device)]


def _grow(model: VQModel, codes: int) -> VQModel:
    """The model with a larger book: every code is followed by neighbours, which part as they come to stand for latents."""
    book = model.quantize.embedding.weight.detach()
    grown = VQModel.from_config({**model.config, "num_vq_embeddings": codes})
    more = book.repeat(-(-codes // len(book)), 1)[:codes]
    more[len(book) :] += 0.05 * book.std(0) * torch.randn_like(more[len(book) :])
    grown.load_state_dict(model.state_dict() | {"quantize.embedding.weight": more})
    return grown


def _fresh(recipe: Vqgan) -> VQModel:
    levels = len(recipe.widths)
    return VQModel(
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        block_out_channels=recipe.widths,
        layers_per_block=1,
        latent_channels=recipe.code_width,
        vq_embed_dim=recipe.code_width,
        num_vq_embeddings=recipe.codes,
        norm_num_groups=recipe.groups,
        sample_size=SIDE,
    )
