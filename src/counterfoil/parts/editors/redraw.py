"""The walk down: sources and their edited versions side by side, step by step, the second under the control of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from counterfoil.parts.editors.attention import controlled
from counterfoil.parts.editors.control import Control, covered
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.methods import Walk
from counterfoil.parts.editors.schedule import Schedule, guided


@torch.no_grad()
def redraw(
    diffusion: Diffusion, schedule: Schedule, walk: Walk, *, edited: Tensor, control: Control, guidance: Tensor
) -> tuple[Tensor, Tensor]:
    """Latents of P reconstructions and of M edits.  # edited: (M, L, D), guidance: (M,) → (P, C, h, w), (M, C, h, w)"""
    sources, targets = walk.latents, walk.latents[control.owner]
    for phase in phases(control, first=walk.first, last=schedule.steps):
        drawn, back = (torch.tensor(places, device=sources.device) for places in (phase.drawn, phase.back))
        few = control.of(drawn)
        sources, made = _walk_down(
            diffusion,
            schedule,
            walk,
            steps=phase.steps,
            latents=(sources, targets[drawn]),
            edited=edited[drawn],
            control=few,
            guidance=guidance[drawn],
        )
        targets, control.heat = made[back], few.heat.of(back)
    return sources, targets


@dataclass(frozen=True)
class Phase:
    """Steps in which the same targets are still one picture."""

    steps: range
    drawn: tuple[int, ...]  # one target of each picture
    back: tuple[int, ...]  # (M,) the place of every target's picture among those


def phases(control: Control, *, first: int, last: int) -> list[Phase]:
    """The walk in phases. Candidates of an edit with the same guidance are one picture until the first stops borrowing the
    source's self-attention, and are drawn once until then; without `kinds` every target is drawn from the start."""
    kinds: Sequence[object] = control.kinds or range(len(control.owner))
    leaves = [min(max(int(step), first), last) for step in covered(control.self_shares.cpu(), control.steps)]
    bounds = sorted({first, last, *(leaves if control.kinds else ())})
    found = []
    for start, stop in pairwise(bounds):
        pictures = [(kind, min(leave, start + 1)) for kind, leave in zip(kinds, leaves, strict=True)]
        distinct = list(dict.fromkeys(pictures))
        drawn = tuple(pictures.index(picture) for picture in distinct)
        found.append(Phase(range(start, stop), drawn, tuple(distinct.index(picture) for picture in pictures)))
    return found


def _walk_down(
    diffusion: Diffusion,
    schedule: Schedule,
    walk: Walk,
    *,
    steps: range,
    latents: tuple[Tensor, Tensor],
    edited: Tensor,
    control: Control,
    guidance: Tensor,
) -> tuple[Tensor, Tensor]:
    """Sources and targets some steps further down."""
    sources, targets = latents
    count, many = len(sources), len(targets)
    guided_sources = 0 if walk.source_guidance is None else count
    # Rows of a call: sources and targets unconditional, then sources and targets conditional.
    first_conditional = guided_sources + many
    rows = torch.arange(first_conditional + count + many, device=sources.device)
    control.lay_out(
        len(rows),
        sources=rows[first_conditional : first_conditional + count],
        targets=rows[first_conditional + count :],
        side=sources.shape[-1],
    )
    everyone = torch.arange(count, device=sources.device)
    with diffusion.uncompiled(), controlled(diffusion.unet, control):
        for step in steps:
            control.begin(step)
            empty = walk.unconditional_at(step)
            answers = diffusion.predict(
                torch.cat([sources[:guided_sources], targets, sources, targets]),
                schedule.times[step],
                torch.cat([empty[:guided_sources], empty[control.owner], walk.conditional, edited]),
            )
            bare_sources, bare_targets, told_sources, told_targets = answers.split([guided_sources, many, count, many])
            control.compare(told_sources, told_targets)
            source_output = told_sources
            if walk.source_guidance is not None:
                source_output = guided(bare_sources, told_sources, walk.source_guidance)
            target_output = guided(bare_targets, told_targets, guidance)
            sources = walk.advance(schedule, source_output, sources, step=step, owner=everyone)
            targets = walk.advance(schedule, target_output, targets, step=step, owner=control.owner)
            targets = control.blend(sources[control.owner], targets)
    return sources, targets
