"""Models of open_clip as an oracle."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.parts.encoders.openclip import load
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE
from counterfoil.parts.oracles.acceptance import Acceptance, Unsure
from counterfoil.parts.oracles.zero_shot import ZeroShotOracle


def openclip_oracle(
    name: str,
    *,
    templates: str | Sequence[str] = PAPER_TEMPLATE,
    threshold: float = 0.0,
    margin: float = 0.0,
    unsure: Unsure = "reject",
    sha256: str | None = None,
) -> ZeroShotOracle:
    """A model of open_clip, asked by class names: openclip:ViT-B-32/openai, openclip:ViT-B-32/FILE, or openclip:FOLDER.

    The part behind the first slash is a set of published weights or a local file; a folder has open_clip_config.json
    beside the weights; `hf-hub:ORGANISATION/NAME` is a repository in that layout. `sha256` is the hash of the weights.
    The other options are those of the oracle `clip`.
    """
    acceptance = Acceptance(threshold=threshold, margin=margin, unsure=unsure)
    return ZeroShotOracle(load(name, sha256=sha256), templates=templates, acceptance=acceptance)
