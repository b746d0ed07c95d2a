"""DDIM inversion: the noise from which a picture would have come.

Papers: Song, Meng and Ermon, "Denoising diffusion implicit models"; the fixed-point refinement follows Pan, Gherardi, Xie
and Huang, "Effective real image editing with accelerated iterative diffusion inversion".
"""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.schedule import Estimate, Schedule


@torch.no_grad()
def invert(
    diffusion: Diffusion, schedule: Schedule, latents: Tensor, embeddings: Tensor, *, refinements: int = 0
) -> list[Tensor]:
    """The latents at every level, the noisiest first.  # (N, C, h, w), (N, L, D) → steps + 1 of (N, C, h, w)

    A level's noise is asked for at the level below, which is only nearly right. Each refinement asks again at the level
    just found; where that settles, a DDIM walk down without guidance leads back exactly.
    """
    levels = [latents]
    for level in range(schedule.steps - 1, -1, -1):
        below = levels[-1]
        output = diffusion.predict(below, schedule.times[level], embeddings)
        above = schedule.towards(schedule.estimate(output, below, level + 1), level)
        for _ in range(refinements):
            output = diffusion.predict(above, schedule.times[level], embeddings)
            noise = schedule.estimate(output, above, level).noise
            above = schedule.towards(Estimate(schedule.clean(below, noise, level + 1), noise), level)
        levels.append(above)
    return levels[::-1]
