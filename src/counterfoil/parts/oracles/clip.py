"""CLIP and SigLIP from transformers as an oracle."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.parts.encoders.clip import load
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE
from counterfoil.parts.oracles.acceptance import Acceptance, Unsure
from counterfoil.parts.oracles.zero_shot import ZeroShotOracle


def clip_oracle(
    name: str,
    *,
    templates: str | Sequence[str] = PAPER_TEMPLATE,
    threshold: float = 0.0,
    margin: float = 0.0,
    unsure: Unsure = "reject",
    revision: str | None = None,
    sha256: str | None = None,
) -> ZeroShotOracle:
    """CLIP or SigLIP from transformers, asked by class names: clip:FOLDER, or clip:openai/clip-vit-base-patch32 from the hub.

    A picture keeps its label when the label's prompt is the nearest. `templates` are prompts with `{class}` in them,
    averaged when there are several. `margin` asks for a lead over the next class; where no class has a probability of
    `threshold`, the oracle rejects or, with `unsure: abstain`, says nothing. `revision` is a branch, tag or commit of the
    repository, `sha256` the hash of its weights.
    """
    acceptance = Acceptance(threshold=threshold, margin=margin, unsure=unsure)
    return ZeroShotOracle(load(name, revision=revision, sha256=sha256), templates=templates, acceptance=acceptance)
