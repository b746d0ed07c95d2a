"""Edit-friendly DDPM inversion: noise maps under which the DDPM walk retraces a picture exactly.

Paper: Huberman-Spiegelglas, Kulikov and Michaeli, "An edit friendly DDPM noise space: inversion and manipulations". The
levels are drawn independently of each other, so every one of them is known at once and no walk is needed to find them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.schedule import Schedule, guided


@torch.no_grad()
def invert(
    diffusion: Diffusion,
    schedule: Schedule,
    latents: Tensor,
    *,
    conditional: Tensor,
    unconditional: Tensor | None,
    guidance: float,
    seeds: Sequence[int],
    first: int,
) -> tuple[Tensor, Tensor]:
    """The latents at level `first` and the noise maps from there on.  # → (N, C, h, w), (N, steps − first, C, h, w)

    Without unconditional embeddings the walk is not guided.
    """
    noises = torch.stack([_noise(seed, latents[0], schedule.steps - first) for seed in seeds])  # (N, steps − first, C, h, w)
    levels = [schedule.noised(latents, noises[:, place], level) for place, level in enumerate(range(first, schedule.steps))]
    found, here = [], levels[0]
    for place, level in enumerate(range(first, schedule.steps)):
        output = diffusion.predict(here, schedule.times[level], conditional)
        if unconditional is not None:
            output = guided(diffusion.predict(here, schedule.times[level], unconditional), output, guidance)
        mean, deviation = schedule.posterior(schedule.estimate(output, here, level), level)
        wanted = levels[place + 1] if level + 1 < schedule.steps else latents
        maps = (wanted - mean) / deviation if deviation > 0 else torch.zeros_like(mean)
        found.append(maps)
        here = mean + deviation * maps  # `wanted` but for rounding, which is thus not carried along
    return levels[0], torch.stack(found, dim=1)


def _noise(seed: int, like: Tensor, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(int(seed) % 2**63)
    return torch.randn((count, *like.shape), generator=generator).to(like)
