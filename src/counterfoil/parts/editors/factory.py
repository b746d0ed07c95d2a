"""Prompt-to-prompt editors by name: `p2p:FOLDER` or `p2p:CompVis/stable-diffusion-v1-4`."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.errors import BadSpec
from counterfoil.parts.editors import loading
from counterfoil.parts.editors.control import ControlSettings
from counterfoil.parts.editors.diffusion import PRECISIONS, Precision
from counterfoil.parts.editors.null_text import Fitting
from counterfoil.parts.editors.prompt_to_prompt import PromptToPrompt
from counterfoil.parts.editors.settings import Inverting, Settings, shares


def p2p(
    name: str,
    *,
    inversion: Inverting = "null-text",
    steps: int = 50,
    guidance: float | Sequence[float] = 7.5,
    self_replace: float | Sequence[float] = (0.4, 0.5, 0.6, 0.7, 0.8),
    word_map: str = "refine",
    cross_replace: float = 0.8,
    reweight: float = 2.0,
    blend: float = 0.0,
    blend_by: str = "words",
    inner_steps: int = 10,
    rate: float = 1e-2,
    refinements: int = 0,
    skip: float = 0.36,
    source_guidance: float | None = None,
    tile: int | None = None,
    precision: Precision | None = None,
    compiled: bool = False,
    revision: str | None = None,
) -> PromptToPrompt:
    """Prompt-to-prompt over a Stable Diffusion 1.x or 2.x pipeline: p2p:FOLDER, or p2p:CompVis/stable-diffusion-v1-4.

    `inversion` is null-text, negative-prompt, ddim or edit-friendly; the other defaults are those of LANCE. Every share of
    the steps in `self_replace` makes a candidate, with a `guidance` of its own if as many are given. `word_map` is refine or
    replace; `blend` above 0 confines the change to where the changed words are looked at, or with `blend_by` difference to
    where source and edit are answered differently. docs/editing.md explains each.
    """
    if tile is not None and (isinstance(tile, bool) or not isinstance(tile, int) or tile < 1):
        raise BadSpec(f"p2p:{name}: tile is the number of pictures inverted at a time, at least 1, got {tile!r}")
    if precision not in (None, *PRECISIONS):
        raise BadSpec(f"p2p:{name}: precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    settings = Settings(
        inversion=inversion,
        steps=steps,
        guidance=shares(guidance, name="guidance"),
        self_replace=shares(self_replace),
        control=ControlSettings(
            word_map=word_map, cross_replace=cross_replace, reweight=reweight, blend=blend, blend_by=blend_by
        ),
        fitting=Fitting(inner_steps=inner_steps, rate=rate),
        refinements=refinements,
        skip=skip,
        source_guidance=source_guidance,
    )
    diffusion = loading.load("p2p", name, revision=revision).hasten(precision=precision, compiled=compiled)
    return PromptToPrompt(diffusion, settings, tile=tile)
