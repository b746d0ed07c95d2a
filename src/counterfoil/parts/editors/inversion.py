"""Four ways from an image to noise and back.

DDIM inversion: Song, Meng and Ermon, "Denoising diffusion implicit models"; its fixed-point refinement follows Pan, Gherardi,
Xie and Huang, "Effective real image editing with accelerated iterative diffusion inversion". Null-text optimisation: Mokady,
Hertz, Aberman, Pritch and Cohen-Or, "Null-text inversion for editing real images using guided diffusion models".
Negative-prompt inversion: Miyake, Iohara, Saito and Tanaka, the method of that name. Edit-friendly inversion:
Huberman-Spiegelglas, Kulikov and Michaeli, "An edit friendly DDPM noise space: inversion and manipulations".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.editors.diffusion import Diffusion, Estimate, Schedule, guide


@dataclass(frozen=True)
class Setting:
    """The diffusion, its schedule and the guidance that a method works with."""

    diffusion: Diffusion
    schedule: Schedule
    guidance: float

    @property
    def latent(self) -> tuple[int, ...]:
        """Shape of one image's latents."""
        config = self.diffusion.unet.config
        return int(config.in_channels), int(config.sample_size), int(config.sample_size)

    def empty(self, like: Sequence[str]) -> Tensor:
        """Embeddings of the empty text, one row per caption.  # → (N, L, D)"""
        return self.diffusion.embed([""] * len(like))


@dataclass(frozen=True)
class Walk:
    """The way from inversions of P images back to the images."""

    first: int  # level it starts from
    latents: Tensor  # (P, C, h, w) there
    conditional: Tensor  # (P, L, D)
    unconditional: Tensor  # (P, L, D), or (P, steps, L, D) where every step has its own
    source_guidance: float | None  # None: the caption stands on both sides, so guiding the source changes nothing
    noises: Tensor | None = None  # (P, steps − first, C, h, w): a DDPM walk with these; else a DDIM walk

    def unconditional_at(self, step: int) -> Tensor:
        """The embeddings of the unconditional side at a step.  # (P, L, D)"""
        return self.unconditional[:, step] if self.unconditional.dim() == 4 else self.unconditional

    def advance(self, schedule: Schedule, output: Tensor, latents: Tensor, *, step: int, owner: Tensor) -> Tensor:
        """The latents one level down; `owner` is the image that each row belongs to."""
        estimate = schedule.estimate(output, latents, step)
        if self.noises is None:
            return schedule.towards(estimate, step + 1)
        mean, deviation = schedule.posterior(estimate, step)
        return mean + deviation * self.noises[owner, step - self.first]


@dataclass(frozen=True)
class Ddim:
    """DDIM inversion alone, guided by the empty text."""

    by_caption: ClassVar[bool] = False
    """True if the caption stands where guidance has the empty text, so that guiding the source changes nothing."""

    refinements: int = 0  # of every level

    def __post_init__(self) -> None:
        check_range("refinements", self.refinements, 0, 100)

    def invert(self, setting: Setting, latents: Tensor, captions: Sequence[str], seeds: Sequence[int]) -> dict[str, Tensor]:
        """The latents of the noisiest level."""
        return {"latent": self.levels(setting, latents, setting.diffusion.embed(captions))[0]}

    @torch.no_grad()
    def levels(self, setting: Setting, latents: Tensor, embeddings: Tensor) -> list[Tensor]:
        """The latents at every level, the noisiest first.  # (N, C, h, w), (N, L, D) → steps + 1 of (N, C, h, w)

        A level's noise is computed at the level below, which is only nearly right. Each refinement computes it again at the
        level just found; where that settles, a DDIM walk down without guidance leads back exactly.
        """
        diffusion, schedule = setting.diffusion, setting.schedule
        levels = [latents]
        for level in range(schedule.steps - 1, -1, -1):
            below = levels[-1]
            output = diffusion.predict(below, schedule.times[level], embeddings)
            above = schedule.towards(schedule.estimate(output, below, level + 1), level)
            for _ in range(self.refinements):
                output = diffusion.predict(above, schedule.times[level], embeddings)
                noise = schedule.estimate(output, above, level).noise
                above = schedule.towards(Estimate(schedule.clean(below, noise, level + 1), noise), level)
            levels.append(above)
        return levels[::-1]

    def shapes(self, setting: Setting) -> dict[str, tuple[int, ...]]:
        """The latents alone."""
        return {"latent": setting.latent}

    def walk(self, setting: Setting, found: Mapping[str, Tensor], captions: Sequence[str]) -> Walk:
        """A DDIM walk, guided by the empty text, by what was fitted for it, or by the caption that stands for it."""
        conditional = setting.diffusion.embed(captions)
        if self.by_caption:
            return Walk(0, found["latent"], conditional, conditional, None)
        empty = found["unconditional"].float() if "unconditional" in found else setting.empty(captions)
        return Walk(0, found["latent"], conditional, empty, setting.guidance)


@dataclass(frozen=True)
class NegativePrompt(Ddim):
    """DDIM inversion whose caption takes the place of the empty text, so that guidance does not move the source."""

    by_caption: ClassVar[bool] = True


@dataclass(frozen=True)
class Fitted:
    """Embeddings for the unconditional side of every step, and the end of the guided walk with them."""

    embeddings: Tensor  # (N, steps, L, D) float16
    latents: Tensor  # (N, C, h, w)
    inner_steps: Tensor  # (N,) taken altogether


@dataclass(frozen=True)
class NullText(Ddim):
    """DDIM inversion, and an embedding of the empty text fitted per step and image.

    With guidance a walk down strays from the levels that DDIM inversion found, so the embedding of the empty text is fitted
    until the guided walk keeps to them. The defaults are the paper's.
    """

    inner_steps: int = 10
    rate: float = 1e-2
    tolerance: float = 1e-5  # a row ends its step once its loss is below tolerance + step · slack
    slack: float = 2e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("inner_steps", self.inner_steps, 0, 1000)
        check_range("rate", self.rate, 0, 10)

    def invert(self, setting: Setting, latents: Tensor, captions: Sequence[str], seeds: Sequence[int]) -> dict[str, Tensor]:
        """The latents of the noisiest level, and the fitted embeddings."""
        conditional = setting.diffusion.embed(captions)
        levels = self.levels(setting, latents, conditional)
        fitted = self.fit(setting, levels, conditional=conditional, empty=setting.empty(captions))
        return {"latent": levels[0], "unconditional": fitted.embeddings}

    def shapes(self, setting: Setting) -> dict[str, tuple[int, ...]]:
        """The latents and an embedding per step."""
        width = int(setting.diffusion.unet.config.cross_attention_dim)
        return {**super().shapes(setting), "unconditional": (setting.schedule.steps, setting.diffusion.longest, width)}

    def fit(self, setting: Setting, levels: list[Tensor], *, conditional: Tensor, empty: Tensor) -> Fitted:
        """Fit the embeddings of N images to the levels of their inversion.  # conditional and empty: (N, L, D)"""
        latents, unconditional = levels[0], empty
        found, taken = [], torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        for step in range(setting.schedule.steps):
            with torch.no_grad():
                answer = setting.diffusion.predict(latents, setting.schedule.times[step], conditional)
            unconditional, counts = self._fit_step(
                setting, step, latents, conditional=answer, start=unconditional, goal=levels[step + 1]
            )
            # Kept in half precision to halve the cache. The walk continues from what is kept, so no error is carried along.
            unconditional = unconditional.half().float()
            with torch.no_grad():
                latents = _advance(setting, step, latents, conditional=answer, unconditional=unconditional)
            found.append(unconditional.half())
            taken += counts
        return Fitted(torch.stack(found, dim=1), latents, taken)

    def _fit_step(
        self, setting: Setting, step: int, latents: Tensor, *, conditional: Tensor, start: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Adam on the rows that are not near enough; a row that is leaves the batch, so that no row pays for another."""
        embeddings, counts = start.clone(), torch.zeros(len(latents), dtype=torch.long, device=latents.device)
        rows = torch.arange(len(latents), device=latents.device)
        adam, rate = Adam(torch.zeros_like(start), torch.zeros_like(start)), self.rate * max(1 - step / 100, 0.0)
        for inner in range(self.inner_steps):
            leaf = embeddings[rows].requires_grad_()
            reached = _advance(setting, step, latents[rows], conditional=conditional[rows], unconditional=leaf)
            losses = (reached - goal[rows]).square().flatten(1).mean(1)  # (rows,)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            with torch.no_grad():
                embeddings[rows] = leaf - rate * adam.direction(gradient, inner + 1)
                counts[rows] += 1
                # A loss that is not a number ends its row too: it would never get better.
                left = losses >= self.tolerance + step * self.slack
                rows, adam = rows[left], adam.keep(left)
            if len(rows) == 0:
                break
        return embeddings, counts


def _advance(setting: Setting, step: int, latents: Tensor, *, conditional: Tensor, unconditional: Tensor) -> Tensor:
    """The guided walk's next level; `conditional` is the denoiser's answer for the captions."""
    answer = setting.diffusion.predict(latents, setting.schedule.times[step], unconditional)
    estimate = setting.schedule.estimate(guide(answer, conditional, setting.guidance), latents, step)
    return setting.schedule.towards(estimate, step + 1)


@dataclass
class Adam:
    """Adam's moments, one row per image, so that rows can leave."""

    mean: Tensor
    square: Tensor
    decay: tuple[float, float] = (0.9, 0.999)

    def direction(self, gradient: Tensor, count: int) -> Tensor:
        """The step of length about 1 that follows from this gradient, the `count`-th."""
        first, second = self.decay
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient.square()
        return self.mean / (1 - first**count) / ((self.square / (1 - second**count)).sqrt() + 1e-8)

    def keep(self, rows: Tensor) -> Adam:
        """The moments of these rows alone.  # (N,) bool"""
        return Adam(self.mean[rows], self.square[rows], self.decay)


@dataclass(frozen=True)
class EditFriendly:
    """Noise maps under which the DDPM walk retraces an image exactly.

    The levels are drawn independently of each other, so every one of them is known at once and no walk is needed to find them.
    """

    skip: float = 0.36  # share of the steps, the noisiest, that is left out
    source_guidance: float | None = None  # guide the source by the empty text, not by its caption

    def __post_init__(self) -> None:
        check_range("skip", self.skip, 0, 0.99)
        check_range("source_guidance", 0 if self.source_guidance is None else self.source_guidance, 0, 100)

    @property
    def by_caption(self) -> bool:
        """True unless the source is guided by the empty text."""
        return self.source_guidance is None

    def first(self, schedule: Schedule) -> int:
        """The level from which the image is redrawn."""
        return int(self.skip * schedule.steps)

    @torch.no_grad()
    def invert(self, setting: Setting, latents: Tensor, captions: Sequence[str], seeds: Sequence[int]) -> dict[str, Tensor]:
        """The latents at the first level and the noise maps from there on.  # → (N, C, h, w), (N, steps − first, C, h, w)"""
        diffusion, schedule, first = setting.diffusion, setting.schedule, self.first(setting.schedule)
        conditional = diffusion.embed(captions)
        unconditional = None if self.source_guidance is None else setting.empty(captions)
        noises = torch.stack([_noise(seed, latents[0], schedule.steps - first) for seed in seeds])
        places = enumerate(range(first, schedule.steps))
        levels = [schedule.add_noise(latents, noises[:, place], level) for place, level in places]
        found, here = [], levels[0]
        for place, level in enumerate(range(first, schedule.steps)):
            output = diffusion.predict(here, schedule.times[level], conditional)
            if unconditional is not None:
                answer = diffusion.predict(here, schedule.times[level], unconditional)
                output = guide(answer, output, self.source_guidance or 1.0)
            mean, deviation = schedule.posterior(schedule.estimate(output, here, level), level)
            wanted = levels[place + 1] if level + 1 < schedule.steps else latents
            maps = (wanted - mean) / deviation if deviation > 0 else torch.zeros_like(mean)
            found.append(maps)
            here = mean + deviation * maps  # `wanted` but for rounding, which is thus not carried along
        return {"latent": levels[0], "noises": torch.stack(found, dim=1)}

    def shapes(self, setting: Setting) -> dict[str, tuple[int, ...]]:
        """The latents and a noise map per step."""
        return {"latent": setting.latent, "noises": (setting.schedule.steps - self.first(setting.schedule), *setting.latent)}

    def walk(self, setting: Setting, found: Mapping[str, Tensor], captions: Sequence[str]) -> Walk:
        """A DDPM walk with the noise maps."""
        conditional = setting.diffusion.embed(captions)
        unconditional = conditional if self.by_caption else setting.empty(captions)
        first = self.first(setting.schedule)
        return Walk(first, found["latent"], conditional, unconditional, self.source_guidance, noises=found["noises"])


def _noise(seed: int, like: Tensor, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(int(seed) % 2**63)
    return torch.randn((count, *like.shape), generator=generator).to(like)


InversionMethod = Ddim | EditFriendly
"""Inverts a batch of latents into tensors with one row per image, and opens the walk back down from them."""

INVERSIONS: Mapping[str, type[Ddim] | type[EditFriendly]] = {
    "null-text": NullText,
    "negative-prompt": NegativePrompt,
    "ddim": Ddim,
    "edit-friendly": EditFriendly,
}


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Refuse an option that is no number of its range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadSpec(f"{name} is a number from {low:g} to {high:g}, got {value!r}")
