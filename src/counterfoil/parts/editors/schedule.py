"""The arithmetic of a diffusion's noise levels: DDIM steps both ways and DDPM steps, for any kind of prediction.

Levels run from 0, the noisiest, to `steps`, the clean latent. The network is asked at `times[k]` on the way from level k
to level k + 1. Papers: Song, Meng and Ermon, "Denoising diffusion implicit models"; Ho, Jain and Abbeel, "Denoising
diffusion probabilistic models"; Salimans and Ho, "Progressive distillation" (prediction of the velocity).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadPart

PREDICTIONS = ("epsilon", "v_prediction", "sample")


@dataclass(frozen=True)
class Estimate:
    """What the network believes a noisy latent to be made of."""

    clean: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Schedule:
    """Noise levels of a walk of some steps."""

    times: tuple[int, ...]  # the network's time for each step, noisiest first
    kept: tuple[float, ...]  # share of the signal's variance at levels 0 … steps
    prediction: str

    @property
    def steps(self) -> int:
        """Number of steps from noise to picture."""
        return len(self.times)

    def estimate(self, output: Tensor, latents: Tensor, level: int) -> Estimate:
        """The two parts of latents at `level`, out of the network's answer for them."""
        signal, ruin = self._shares(level)
        if self.prediction == "v_prediction":
            return Estimate(signal * latents - ruin * output, signal * output + ruin * latents)
        if self.prediction == "sample":
            return Estimate(output, (latents - signal * output) / ruin)
        return Estimate(self.clean(latents, output, level), output)

    def clean(self, latents: Tensor, noise: Tensor, level: int) -> Tensor:
        """The clean latent, if this is the noise in latents at `level`."""
        signal, ruin = self._shares(level)
        return (latents - ruin * noise) / signal

    def towards(self, estimate: Estimate, level: int) -> Tensor:
        """The latents of this estimate at another level, without new noise: a DDIM step, up or down."""
        signal, ruin = self._shares(level)
        return signal * estimate.clean + ruin * estimate.noise

    def noised(self, clean: Tensor, noise: Tensor, level: int) -> Tensor:
        """A clean latent at some level of noise."""
        return self.towards(Estimate(clean, noise), level)

    def posterior(self, estimate: Estimate, level: int) -> tuple[Tensor, float]:
        """Mean and deviation of the DDPM step from `level` to the next."""
        here, there = self.kept[level], self.kept[level + 1]
        variance = (1 - there) / (1 - here) * (1 - here / there)
        direction = max(1 - there - variance, 0.0) ** 0.5
        mean = there**0.5 * estimate.clean + direction * estimate.noise
        return mean, max(variance, 0.0) ** 0.5

    def _shares(self, level: int) -> tuple[float, float]:
        return self.kept[level] ** 0.5, (1 - self.kept[level]) ** 0.5


def make_schedule(config: Mapping[str, Any], steps: int) -> Schedule:
    """The levels of `steps` DDIM steps for a pipeline whose scheduler has this configuration."""
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler.from_config(dict(config))
    prediction = str(scheduler.config.prediction_type)
    if prediction not in PREDICTIONS:
        raise BadPart(f"the scheduler predicts {prediction!r}; editors know {', '.join(PREDICTIONS)}")
    most = int(scheduler.config.num_train_timesteps)
    if not 1 <= steps <= most:
        raise BadPart(f"steps is a number from 1 to {most}, which the network was trained with, got {steps}")
    scheduler.set_timesteps(steps)
    # Asking for more steps than the spacing has room for can leave times beyond either end.
    times = tuple(min(max(int(time), 0), most - 1) for time in scheduler.timesteps)
    left = scheduler.alphas_cumprod.double()
    kept = [float(left[time]) for time in times] + [float(scheduler.final_alpha_cumprod)]
    if prediction == "epsilon" and kept[0] == 0:
        raise BadPart("the schedule starts from pure noise, where a prediction of the noise says nothing; it needs v_prediction")
    return Schedule(times, tuple(kept), prediction)


def expand(values: Tensor, like: Tensor) -> Tensor:
    """One value a row, shaped to multiply with rows of `like`.  # (N,) → (N, 1, 1, 1)"""
    return values.to(like).reshape(-1, *[1] * (like.dim() - 1))


def guided(unconditional: Tensor, conditional: Tensor, guidance: Tensor | float) -> Tensor:
    """Classifier-free guidance; at a guidance of 1 the conditional answer."""
    scale = expand(guidance, conditional) if isinstance(guidance, Tensor) else guidance
    return unconditional + scale * (conditional - unconditional)
