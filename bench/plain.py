"""Algorithm 1, editing and guided denoising written straight from the papers: what ours is compared with.

The modules run as they come, in the dtype they are given in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from bench.setup import Parts
from torch import Tensor

from counterfoil.core.spec import SearchSpec
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.scheduler import Job
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.parts.contracts import State


@dataclass(frozen=True)
class PlainEditor:
    """DDIM inversion, null-text optimisation and prompt-to-prompt, each as its paper tells it."""

    unet: Any
    vae: Any
    scheduler: Any  # a DDIMScheduler with its time steps set
    guidance: float

    @torch.no_grad()
    def invert(self, picture: Tensor, caption: Tensor, *, calls: int) -> list[Tensor]:
        """The latents at the first levels up from an image, the last the noisiest.  # (1, 3, H, W), (1, L, D)"""
        levels = [self.vae.encode(picture * 2 - 1).latent_dist.mode() * self.vae.config.scaling_factor]
        left = self.scheduler.alphas_cumprod
        times = self.scheduler.timesteps.flip(0)[:calls]
        before = self.scheduler.final_alpha_cumprod
        for time in times:
            noise, after = self._noise(levels[-1], time, caption), left[time]
            clean = (levels[-1] - (1 - before).sqrt() * noise) / before.sqrt()
            levels.append((after.sqrt() * clean + (1 - after).sqrt() * noise).to(noise.dtype))
            before = after
        return levels

    def fit(self, latents: Tensor, goals: list[Tensor], *, caption: Tensor, empty: Tensor, inner: int) -> Tensor:
        """Null-text optimisation of as many steps as there are goals."""
        for time, goal in zip(self.scheduler.timesteps, goals, strict=False):
            empty = empty.detach().clone().requires_grad_()
            optimiser = torch.optim.Adam([empty], lr=1e-2)
            with torch.no_grad():
                told = self._noise(latents, time, caption)
            for _ in range(inner):
                reached = self._guided_step(latents, time, bare=self._noise(latents, time, empty), told=told)
                loss = F.mse_loss(reached.float(), goal.float())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                if loss.item() < 0:  # never; but the paper's loop looks at the loss, and so waits for the device
                    break
            with torch.no_grad():
                latents = self._guided_step(latents, time, bare=self._noise(latents, time, empty), told=told)
        return latents

    @torch.no_grad()
    def redraw(self, latents: Tensor, *, caption: Tensor, edited: Tensor, empty: Tensor, share: float) -> Tensor:
        """Source and edit side by side, with their attention exchanged up to some of the steps.  # → (2, 3, H, W)"""
        text = torch.cat([empty, empty, caption, edited])
        both, times = torch.cat([latents, latents]), self.scheduler.timesteps
        own = self.unet.attn_processors
        for step, time in enumerate(times):
            crossing, borrowing = step < 0.8 * len(times), step < share * len(times)
            self.unet.set_attn_processor({name: PlainControl(crossing, borrowing) for name in own})
            bare, told = self._noise(torch.cat([both, both]), time, text).chunk(2)
            both = self._guided_step(both, time, bare=bare, told=told)
        self.unet.set_attn_processor(own)
        return (self.vae.decode(both / self.vae.config.scaling_factor).sample / 2 + 0.5).clamp(0, 1)

    def _noise(self, latents: Tensor, time: Tensor, text: Tensor) -> Tensor:
        noise: Tensor = self.unet(latents, time, encoder_hidden_states=text).sample
        return noise

    def _guided_step(self, latents: Tensor, time: Tensor, *, bare: Tensor, told: Tensor) -> Tensor:
        reached: Tensor = self.scheduler.step(bare + self.guidance * (told - bare), time, latents).prev_sample
        return reached


class PlainControl:
    """Attention whose maps are looked at where prompt-to-prompt exchanges them. Rows: two bare, then source and edit."""

    def __init__(self, crossing: bool, borrowing: bool) -> None:
        self.crossing, self.borrowing = crossing, borrowing

    def __call__(self, attn: Any, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None, **unused: Any) -> Tensor:
        text = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = (
            rows.unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for rows in (attn.to_q(hidden_states), attn.to_k(text), attn.to_v(text))
        )
        exchanged = self.crossing if encoder_hidden_states is not None else self.borrowing and query.shape[2] <= 32**2
        if exchanged:
            maps = (query @ key.transpose(-1, -2) * attn.scale).softmax(-1)
            maps = torch.cat([maps[:3], maps[2:3]])
            mixed = maps @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, scale=attn.scale)
        out: Tensor = attn.to_out[1](attn.to_out[0](mixed.transpose(1, 2).flatten(2)))
        return out


def climb(
    unet: Any, scheduler: Any, pictures: Tensor, *, top: int, levels: int, loss: Callable[[Tensor], Tensor], length: float
) -> Tensor:
    """Guided denoising: at each level the finished image is looked at and the noisy one is pushed up the loss's slope.

    The gradient goes through the guess made at the level, as in diffusion posterior sampling.  # (N, 3, H, W) → the same
    """
    times = [round((top + 1) * (levels - level) / levels) - 1 for level in range(levels)]
    left = scheduler.alphas_cumprod.to(pictures.device)
    chance = torch.randn(pictures.shape, generator=torch.Generator().manual_seed(0)).to(pictures.device)
    noisy = left[times[0]].sqrt() * (pictures * 2 - 1) + (1 - left[times[0]]).sqrt() * chance

    def look(noisy: Tensor, time: int) -> tuple[Tensor, Tensor]:
        noise = unet(noisy, time).sample
        return (noisy - (1 - left[time]).sqrt() * noise) / left[time].sqrt(), noise

    def down(clean: Tensor, noise: Tensor, time: int) -> Tensor:
        return left[time].sqrt() * clean + (1 - left[time]).sqrt() * noise

    finished = pictures
    for level, time in enumerate(times):
        leaf = noisy.detach().requires_grad_()
        clean, noise = look(leaf, time)
        with torch.no_grad():
            done, rest = clean.detach(), noise.detach()
            for later in times[level + 1 :]:
                done, rest = look(down(done, rest, later), later)
        finished = (done + (clean - clean.detach()) + 1) / 2
        (slope,) = torch.autograd.grad(loss(finished), leaf)
        with torch.no_grad():
            noisy = noisy + length * slope.sign()
            if level + 1 < levels:
                noisy = down(*look(noisy, time), times[level + 1])
    return finished.detach()


def loop(given: Parts, work: list[Job], search: SearchSpec, *, batch: int, device: str) -> int:
    """Algorithm 1 as one would write it down, `batch` images at a time until the last of them has ended. The steps kept."""
    length = StepLength(search.step or given.generator.step_size, search.norm, search.unit)
    kept = 0
    for at in range(0, len(work), batch):
        some = work[at : at + batch]
        labels, seeds = torch.tensor([[job.label, job.seed] for job in some], device=device).T
        with torch.no_grad():
            state = given.generator.start(torch.stack([job.image for job in some]).to(device), labels, seeds)
        alive = torch.ones(len(some), dtype=torch.bool, device=device)
        for _ in range(search.budget):
            state, accepted = iteration(given, state, labels, length)
            alive &= accepted
            if not (left := int(alive.sum())):
                break
            kept += left
    return kept


def iteration(given: Parts, state: State, labels: Tensor, length: StepLength) -> tuple[State, Tensor]:
    """One step of that loop: where it leads, and which of the images are still seen as their class.  # (N,) of bool"""
    model, generator, oracle = given.model, given.generator, given.oracle
    leaf = state[generator.moving].detach().requires_grad_()
    pictures = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}))
    loss = F.cross_entropy(model.logits(pictures), labels, reduction="sum")
    gradient = torch.autograd.grad(loss, leaf)[0]
    with torch.no_grad():
        state = generator.step(state, length.scale_to_step(gradient, state["scale"]))
        pictures = RoundTo8Bits.apply(generator.render(state))
        return state, oracle.judge(pictures, labels).keeps_label != 0
