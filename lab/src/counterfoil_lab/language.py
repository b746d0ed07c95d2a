"""The lab's captioner and rewriters by name: lab:blip, lab:rewriter and lab:lexicon. The same code loads the big ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterfoil.parts.language.captioners import TransformersCaptioner
from counterfoil.parts.language.captioners import captioner as transformers_captioner
from counterfoil.parts.language.lexicon_rewriter import VARIATIONS, LexiconRewriter, lexicon_rewriter
from counterfoil.parts.language.llm import LlmRewriter, llm_rewriter
from counterfoil_lab.parts import WEIGHTS, known


def captioner(name: str, *, beams: int = 1) -> TransformersCaptioner:
    """The lab's BLIP, which says every attribute of a scene: lab:blip."""
    folder = WEIGHTS / known(name, ("blip",))
    return transformers_captioner(str(folder), least_tokens=0, most_tokens=30, beams=beams, prefix="")


def rewriter(
    name: str,
    *,
    variations: int = VARIATIONS,
    kinds: Sequence[str] | None = None,
    temperature: float = 1.0,
    **options: Any,
) -> LexiconRewriter | LlmRewriter:
    """The lab's rewriters, whose words its painter knows: lab:lexicon (word lists) and lab:rewriter (a small language model).

    `kinds` are the kinds of adjectives that lab:lexicon changes: colour, texture and material. lab:rewriter takes the options
    of `llm`.
    """
    if known(name, ("lexicon", "rewriter")) == "lexicon":
        return lexicon_rewriter("wardrobe", variations=variations, kinds=kinds)
    settings = {"style": "wardrobe", "top_p": 1.0, "most_tokens": 32, **options}
    return llm_rewriter(str(WEIGHTS / "rewriter"), variations=variations, temperature=temperature, **settings)
