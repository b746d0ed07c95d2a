"""Training data: a pool of rendered scenes, augmentation, and scenes decoded by the lab's autoencoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel, VQModel
from lab.training.loop import Earlier, Run
from lab.training.wording import Wording
from torch import Tensor
from transformers import CLIPTextModel

from counterfoil.parts.fast.codes import nearest_codes
from counterfoil_lab.checker import normalise
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import FACTORS, sample

Columns = dict[str, Tensor]
Draw = Callable[[int, int], Columns]
"""Given a count and a seed, that many samples as named columns."""
Keep = Callable[[Tensor, Tensor], Columns]
"""Given images and their factors, the columns that stand for the images."""


@dataclass(frozen=True)
class PoolSize:
    """Scenes rendered: at the start, at most, and for each sample that is used."""

    start: int = 16_384
    capacity: int = 262_144
    chunk: int = 16_384
    """Scenes drawn at a time: launching the kernels that draw takes as long for a few."""
    fresh: float = 0.1
    """Scenes drawn for each sample that training uses."""


class Pool:
    """Samples to draw batches from."""

    def __init__(self, draw: Draw, *, size: PoolSize, seed: int, device: str) -> None:
        self._draw = draw
        self._size = size
        self._seed = seed * 1_000_003
        self._chance = torch.Generator(device).manual_seed(seed)
        self._device = device
        self._columns: Columns = {}
        self._drawn = 0
        self._owed = float(max(size.start, min(size.chunk, size.capacity)))
        self._refill()

    def batch(self, count: int) -> Columns:
        """A random batch; on the way, the scenes that are due are drawn."""
        self._owed += count * self._size.fresh
        self._refill()
        held = min(self._drawn, self._size.capacity)
        rows = torch.randint(held, (count,), generator=self._chance, device=self._device)
        return {name: column[rows] for name, column in self._columns.items()}

    def _refill(self) -> None:
        chunk = min(self._size.chunk, self._size.capacity)
        while self._owed >= chunk:
            self._owed -= chunk
            # Every chunk has its own seed, so that two pools of one seed hold the same scenes.
            drawn = self._draw(chunk, self._seed + self._drawn // chunk)
            for name, values in drawn.items():
                if name not in self._columns:
                    self._columns[name] = values.new_empty((self._size.capacity, *values.shape[1:]))
                at = self._drawn % self._size.capacity
                self._columns[name][at : at + chunk] = values[: self._size.capacity - at]
            self._drawn += chunk


def to_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as 8-bit values, as a file would hold them."""
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def as_bytes(images: Tensor, factors: Tensor) -> Columns:
    """The images themselves, as the column 'images'."""
    return {"images": to_bytes(images)}


def scene_pool(run: Run, *, size: PoolSize, distribution: str = "full", keep: Keep = as_bytes) -> Pool:
    """A pool of scenes: the column 'factors', one per factor in the order of FACTORS, and what is kept of the images."""
    garments = run.garments()

    @torch.no_grad()
    def draw(count: int, at: int) -> Columns:
        scenes = sample(count, garments=garments, distribution=distribution, seed=at, device=run.device)
        images, _ = render(scenes, garments)
        factors = torch.stack([scenes.factors[name] for name in FACTORS], dim=1)  # (N, 8)
        return {"factors": factors.to(torch.uint8), **keep(images, factors)}

    return Pool(draw, size=size, seed=run.seed, device=run.device)


def mirror_rows(images: Tensor) -> Tensor:
    """The images, half of them left to right: no attribute of a scene tells its sides apart."""
    turned = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(turned, images.flip(-1), images)


def to_floats(images: Tensor) -> Tensor:
    """8-bit images back in [0, 1]."""
    return images.float() / 255


def augment(images: Tensor) -> Tensor:
    """Moved, recoloured, blurred, noisy and partly covered versions of the images.  # (N, 3, H, W) in [0, 1]"""
    images = _move(images)
    images = _sometimes(0.8, _recolour(images), images)
    images = _sometimes(0.3, _soften(images), images)
    images = _sometimes(0.5, images + torch.randn_like(images) * _amount(images, 0.02, 0.2), images)
    images = _sometimes(0.1, 1 - images, images)
    images = _sometimes(0.5, _cover(images), images)
    return images.clamp(0, 1)


def _move(images: Tensor) -> Tensor:
    """Turned, scaled, shifted and mirrored; the edge is continued outwards."""
    count = len(images)
    angle = _numbers(count, -0.35, 0.35, images)
    scale = _numbers(count, 0.8, 1.3, images)
    mirror = torch.where(torch.rand(count, device=images.device) < 0.5, -1.0, 1.0)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    shift_x, shift_y = _numbers(count, -0.2, 0.2, images), _numbers(count, -0.2, 0.2, images)
    rows = (torch.stack([cosine * mirror, -sine, shift_x], 1), torch.stack([sine * mirror, cosine, shift_y], 1))
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _recolour(images: Tensor) -> Tensor:
    """Channels mixed at random, then contrast, brightness and gamma changed."""
    count = len(images)
    mix = torch.eye(3, device=images.device) + 0.35 * torch.randn(count, 3, 3, device=images.device)
    mix = mix / mix.sum(dim=2, keepdim=True).clamp(min=0.5)
    mixed = torch.einsum("nij,njhw->nihw", mix, images)
    contrast, brightness = _amount(images, 0.5, 1.6), _amount(images, -0.25, 0.25)
    changed = ((mixed - 0.5) * contrast + 0.5 + brightness).clamp(1e-3, 1)
    return changed ** _amount(images, 0.6, 1.6)


def _soften(images: Tensor) -> Tensor:
    """Blurred by shrinking and growing back."""
    small = F.interpolate(images, scale_factor=0.5, mode="area")
    return F.interpolate(small, size=images.shape[-2:], mode="bilinear", align_corners=False)


def _cover(images: Tensor) -> Tensor:
    """A rectangle of the image covered with one colour."""
    count, _, height, width = images.shape
    top, left = _amount(images, 0, height - 8), _amount(images, 0, width - 8)
    tall, wide = _amount(images, 6, height / 3), _amount(images, 6, width / 3)
    row = torch.arange(height, device=images.device).view(1, 1, -1, 1)
    column = torch.arange(width, device=images.device).view(1, 1, 1, -1)
    covered = (row >= top) & (row < top + tall) & (column >= left) & (column < left + wide)
    return torch.where(covered, torch.rand(count, 3, 1, 1, device=images.device), images)


def _sometimes(share: float, changed: Tensor, images: Tensor) -> Tensor:
    chosen = torch.rand(len(images), 1, 1, 1, device=images.device) < share
    return torch.where(chosen, changed, images)


def _numbers(count: int, low: float, high: float, like: Tensor) -> Tensor:
    return low + (high - low) * torch.rand(count, device=like.device)


def _amount(images: Tensor, low: float, high: float) -> Tensor:
    return _numbers(len(images), low, high, images).view(-1, 1, 1, 1)


LATENT_NOISE = 0.25
"""The largest random move of a latent, in its standard deviations."""
STRENGTHS = (0.1, 0.6)
"""Share of the way to noise that an image is taken before it is painted back, at least and at most."""
STEPS = 8
GUIDANCE = 3.0


class Artefacts:
    """The decoders to pass images through, as far as they have been trained."""

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
    def pass_through(self, images: Tensor, factors: Tensor) -> Tensor:
        """The images after decoders chosen by their place in the batch; half of them as they are."""
        made = images.clone()
        eighth = max(1, len(images) // 8)
        groups = [slice(start, start + eighth) for start in range(0, 4 * eighth, eighth)]
        if self._vqgan is not None:
            made[groups[0]] = self._requantise(images[groups[0]], noise=0.0)
            made[groups[1]] = self._requantise(images[groups[1]], noise=LATENT_NOISE)
        if self._painter is not None:
            made[groups[2]] = self._decode(self._latents(images[groups[2]], noise=LATENT_NOISE))
            made[groups[3]] = self._repaint(images[groups[3]], factors[groups[3]])
        return made

    def _requantise(self, images: Tensor, *, noise: float) -> Tensor:
        latents = _shift(self._quantiser.encode(self._look_up(images)).latents.float(), noise)
        cells = latents.permute(0, 2, 3, 1)  # (N, H, W, D)
        nearest = nearest_codes(cells.reshape(-1, cells.shape[-1]), self._book)
        codes = self._book[nearest].view_as(cells).permute(0, 3, 1, 2)
        return _pictures(self._quantiser.decode(codes.to(self._kind), force_not_quantize=True).sample)

    def _latents(self, images: Tensor, *, noise: float) -> Tensor:
        latents: Tensor = self._autoencoder.encode(self._look_up(images)).latent_dist.mean.float()
        return _shift(latents, noise)

    def _decode(self, latents: Tensor) -> Tensor:
        return _pictures(self._autoencoder.decode(latents.to(self._kind)).sample)

    def _repaint(self, images: Tensor, factors: Tensor) -> Tensor:
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
        return self._decode(latents / scaling)

    def _load(self, kind: Any, folder: Path) -> Any:
        network = kind.from_pretrained(folder).to(self._run.device, self._kind).eval().requires_grad_(False)
        return network.to(memory_format=torch.channels_last) if self._run.on_gpu else network

    def _look_up(self, images: Tensor) -> Tensor:
        return normalise(images).to(self._kind)


def artefact_pool(run: Run, *, size: PoolSize, decoders: Earlier) -> Pool:
    """A pool of full-distribution scenes, half of which went through a decoder; columns as in `scene_pool`."""
    artefacts = Artefacts(decoders, run)
    return scene_pool(run, size=size, keep=lambda images, factors: as_bytes(artefacts.pass_through(images, factors), factors))


def _pictures(decoded: Tensor) -> Tensor:
    return (decoded.float() / 2 + 0.5).clamp(0, 1)


def _shift(latents: Tensor, noise: float) -> Tensor:
    size = noise * torch.rand(len(latents), 1, 1, 1, device=latents.device) * latents.std()
    return latents + size * torch.randn_like(latents)
