"""The four inversions behind one pair of functions: `invert` a batch of latents, and open the `walk` back down from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterfoil.parts.editors import ddim, edit_friendly
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.null_text import NullText
from counterfoil.parts.editors.schedule import Schedule
from counterfoil.parts.editors.settings import Settings

Found = dict[str, Tensor]
"""An inversion's tensors, one row a picture."""


@dataclass(frozen=True)
class Walk:
    """The way from inversions of P pictures back to the pictures."""

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
        """The latents one level down; `owner` says which picture each row belongs to."""
        estimate = schedule.estimate(output, latents, step)
        if self.noises is None:
            return schedule.towards(estimate, step + 1)
        mean, deviation = schedule.posterior(estimate, step)
        return mean + deviation * self.noises[owner, step - self.first]


def invert(
    diffusion: Diffusion,
    settings: Settings,
    schedule: Schedule,
    *,
    latents: Tensor,
    captions: Sequence[str],
    seeds: Sequence[int],
) -> Found:
    """Invert a batch by the method that the settings name.  # latents: (N, C, h, w)"""
    conditional = diffusion.embed(captions)
    if settings.inversion == "edit-friendly":
        guided_by = None if settings.source_guidance is None else diffusion.embed([""] * len(captions))
        start, noises = edit_friendly.invert(
            diffusion,
            schedule,
            latents,
            conditional=conditional,
            unconditional=guided_by,
            guidance=settings.source_guidance or 1.0,
            seeds=seeds,
            first=settings.first,
        )
        return {"latent": start, "noises": noises}
    levels = ddim.invert(diffusion, schedule, latents, conditional, refinements=settings.refinements)
    if settings.inversion != "null-text":
        return {"latent": levels[0]}
    fitter = NullText(diffusion, schedule, settings.guidance[0], settings.fitting)
    fitted = fitter.fit(levels, conditional=conditional, empty=diffusion.embed([""] * len(captions)))
    return {"latent": levels[0], "unconditional": fitted.embeddings}


def shapes(diffusion: Diffusion, settings: Settings) -> dict[str, tuple[int, ...]]:
    """The tensors that one picture's inversion has to consist of."""
    side = int(diffusion.unet.config.sample_size)
    latent = (int(diffusion.unet.config.in_channels), side, side)
    wanted: dict[str, tuple[int, ...]] = {"latent": latent}
    if settings.inversion == "edit-friendly":
        wanted["noises"] = (settings.steps - settings.first, *latent)
    if settings.inversion == "null-text":
        wanted["unconditional"] = (settings.steps, diffusion.longest, int(diffusion.unet.config.cross_attention_dim))
    return wanted


def open_walk(diffusion: Diffusion, settings: Settings, found: Mapping[str, Tensor], captions: Sequence[str]) -> Walk:
    """The walk down from a batch of inversions."""
    conditional = diffusion.embed(captions)
    if settings.inversion == "null-text":
        unconditional = found["unconditional"].float()
    else:
        unconditional = conditional if settings.by_caption else diffusion.embed([""] * len(captions))
    guidance = settings.source_guidance if settings.inversion == "edit-friendly" else settings.guidance[0]
    return Walk(
        settings.first,
        found["latent"],
        conditional,
        unconditional,
        source_guidance=None if settings.by_caption else guidance,
        noises=found.get("noises"),
    )


def finite(found: Found) -> Tensor:
    """Which rows of an inversion are numbers throughout.  # (N,) bool"""
    return torch.stack([torch.isfinite(rows.float()).flatten(1).all(1) for rows in found.values()]).all(0)
