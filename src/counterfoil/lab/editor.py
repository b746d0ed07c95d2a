"""The lab's editor: prompt-to-prompt over its diffusion pipeline, with settings chosen on the garments of `split: tune`."""

from __future__ import annotations

import inspect
from typing import Any, Final

from counterfoil.lab.places import WEIGHTS, known
from counterfoil.parts.editors.factory import p2p
from counterfoil.parts.editors.prompt_to_prompt import PromptToPrompt

INVERSION: Final = "edit-friendly"
COMMON: Final[dict[str, Any]] = {
    "steps": 16,
    "reweight": 1.0,
    "self_replace": 0.5,
    "cross_replace": 0.7,
    "blend": 0.6,
    "blend_by": "difference",  # the small text encoder looks everywhere a little, so that a blend by words holds nothing back
}
CHOSEN: Final[dict[str, dict[str, Any]]] = {
    "edit-friendly": {"skip": 0.1, "guidance": 1.3},
    "negative-prompt": {"refinements": 2, "guidance": 1.3},
    "null-text": {"refinements": 3, "rate": 0.05, "guidance": 3.0},
    "ddim": {"guidance": 3.0},
}
"""Settings for each inversion; bench/faithfulness.py measures what comes of them."""
BARS: Final[dict[str, float]] = {"image_image": 0.6, "image_text": 0.1, "directional": 0.4}
"""Bars of quality control. The lab's CLIP is trained on every attribute, so its similarities fall faster than those of a CLIP for
photographs."""


def editor(name: str, **options: Any) -> PromptToPrompt:
    """The lab's diffusion pipeline as an editor: lab:diffusion, with the options of p2p and settings of its own."""
    folder = str(WEIGHTS / known(name, ("diffusion",)))
    inversion = options.get("inversion", INVERSION)
    chosen = {**COMMON, "inversion": inversion, **CHOSEN.get(inversion, {})}
    return p2p(folder, **{**chosen, **options})


editor.__signature__ = inspect.signature(p2p)  # type: ignore[attr-defined]  # so that a wrong option is named with those there are
