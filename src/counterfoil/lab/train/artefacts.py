"""Passes scenes through the trained decoders, so that judges of made pictures are trained on what decoders leave behind.

A picture keeps its labels: it is reconstructed, reconstructed from slightly moved latents, or noised a part of the way and
painted back by its own caption. Pictures painted from nothing are left out, since only their prompts could label them, and a
checker trained on those would agree with the painter's mistakes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel, VQModel
from torch import Tensor
from transformers import CLIPTextModel

from counterfoil.lab.train.formats import normalise
from counterfoil.lab.train.pool import Pool, PoolSize, as_bytes, scene_pool
from counterfoil.lab.train.run import Earlier, Run
from counterfoil.lab.train.wording import Wording
from counterfoil.parts.fast.codes import nearest_codes

LATENT_NOISE = 0.25
"""The largest random move of a latent, in its standard deviations."""
STRENGTHS = (0.1, 0.6)
"""How far on the way to noise a picture is taken before it is painted back, at least and at most."""
STEPS = 8
GUIDANCE = 3.0


class Artefacts:
    """The decoders to pass pictures through, as far as they have been trained."""

    def __init__(self, decoders: Earlier, run: Run) -> None:
        self._run = run
        self._wording = Wording(run.device)
        self._kind = torch.bfloat16 if run.on_gpu else torch.float32
        self._vqgan, self._painter = decoders["vqgan"], decoders["diffusion"]
        if self._vqgan is not None:
            self._quantiser = self._load(VQModel, self._vqgan)
            # The codes, unrounded.
            self._book = VQModel.from_pretrained(self._vqgan).quantize.embedding.weight.detach().float().to(run.device)
        if self._painter is not None:
            self._autoencoder = self._load(AutoencoderKL, self._painter / "vae")
            self._unet = self._load(UNet2DConditionModel, self._painter / "unet")
            self._text = self._load(CLIPTextModel, self._painter / "text_encoder")
            self._scheduler = DDIMScheduler.from_pretrained(self._painter / "scheduler")

    @torch.no_grad()
    def passed(self, images: Tensor, factors: Tensor) -> Tensor:
        """The pictures after decoders chosen by their place in the batch; half of them as they are."""
        made = images.clone()
        eighth = max(1, len(images) // 8)
        groups = [slice(start, start + eighth) for start in range(0, 4 * eighth, eighth)]
        if self._vqgan is not None:
            made[groups[0]] = self._requantised(images[groups[0]], noise=0.0)
            made[groups[1]] = self._requantised(images[groups[1]], noise=LATENT_NOISE)
        if self._painter is not None:
            made[groups[2]] = self._decoded(self._latents(images[groups[2]], noise=LATENT_NOISE))
            made[groups[3]] = self._repainted(images[groups[3]], factors[groups[3]])
        return made

    def _requantised(self, images: Tensor, *, noise: float) -> Tensor:
        latents = _moved(self._quantiser.encode(self._seen(images)).latents.float(), noise)
        cells = latents.permute(0, 2, 3, 1)  # (N, H, W, D)
        nearest = nearest_codes(cells.reshape(-1, cells.shape[-1]), self._book)
        codes = self._book[nearest].view_as(cells).permute(0, 3, 1, 2)
        return _pictures(self._quantiser.decode(codes.to(self._kind), force_not_quantize=True).sample)

    def _latents(self, images: Tensor, *, noise: float) -> Tensor:
        latents: Tensor = self._autoencoder.encode(self._seen(images)).latent_dist.mean.float()
        return _moved(latents, noise)

    def _decoded(self, latents: Tensor) -> Tensor:
        return _pictures(self._autoencoder.decode(latents.to(self._kind)).sample)

    def _repainted(self, images: Tensor, factors: Tensor) -> Tensor:
        scheduler, scaling = self._scheduler, self._autoencoder.config.scaling_factor
        latents = self._latents(images, noise=0.0) * scaling
        low, high = STRENGTHS
        strength = low + (high - low) * float(torch.rand(()))
        scheduler.set_timesteps(round(STEPS / strength), device=self._run.device)
        times = scheduler.timesteps[-STEPS:]
        latents = scheduler.add_noise(latents, torch.randn_like(latents), times[:1].expand(len(latents)))
        texts = torch.cat([self._wording.empty(len(images)), self._wording.captions(factors)])
        words = self._text(texts).last_hidden_state
        for time in times:
            blank, told = self._unet(torch.cat([latents] * 2).to(self._kind), time, words).sample.float().chunk(2)
            latents = scheduler.step(blank + GUIDANCE * (told - blank), time, latents).prev_sample
        return self._decoded(latents / scaling)

    def _load(self, kind: Any, folder: Path) -> Any:
        network = kind.from_pretrained(folder).to(self._run.device, self._kind).eval().requires_grad_(False)
        return network.to(memory_format=torch.channels_last) if self._run.on_gpu else network

    def _seen(self, images: Tensor) -> Tensor:
        return normalise(images).to(self._kind)


def artefact_pool(run: Run, *, size: PoolSize, decoders: Earlier) -> Pool:
    """A pool of full-distribution scenes, half of which went through a decoder; columns as in `scene_pool`."""
    artefacts = Artefacts(decoders, run)
    return scene_pool(run, size=size, keep=lambda images, factors: as_bytes(artefacts.passed(images, factors), factors))


def _pictures(decoded: Tensor) -> Tensor:
    return (decoded.float() / 2 + 0.5).clamp(0, 1)


def _moved(latents: Tensor, noise: float) -> Tensor:
    size = noise * torch.rand(len(latents), 1, 1, 1, device=latents.device) * latents.std()
    return latents + size * torch.randn_like(latents)
