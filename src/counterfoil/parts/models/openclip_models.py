"""Models of open_clip as zero-shot classifiers."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.parts.encoders.openclip import load
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE
from counterfoil.parts.models.zero_shot import ZeroShotModel, zero_shot


def openclip_model(
    name: str,
    *,
    classes: str | Sequence[str] | None = None,
    templates: str | Sequence[str] = PAPER_TEMPLATE,
    sha256: str | None = None,
) -> ZeroShotModel:
    """A model of open_clip as a zero-shot classifier: openclip:ViT-B-32/openai, openclip:ViT-B-32/FILE, or openclip:FOLDER.

    `classes` are a list, a file with one name a line, or `imagenet`; `templates` are prompts with `{class}` in them,
    averaged when there are several; `sha256` is the hash of the weights. Names are as for the oracle `openclip`.
    """
    return zero_shot(load(name, sha256=sha256), classes, templates=templates, what=f"openclip:{name}")
