"""The lab's word lists, captioner and rewriters: lab:blip, lab:lexicon and lab:rewriter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from counterfoil.parts.language.captions import CaptionOptions, TransformersCaptioner
from counterfoil.parts.language.captions import captioner as transformers_captioner
from counterfoil.parts.language.lexicon import Lexicon
from counterfoil.parts.language.lexicon_rewriter import PROPOSALS, LexiconRewriter
from counterfoil.parts.language.prompted_rewriter import LlmOptions, PromptedRewriter, llm_rewriter
from counterfoil.parts.pretrained import Dtype
from counterfoil_lab.captions import GENERIC, MEDIUMS, PLACES, SKIES
from counterfoil_lab.parts import WEIGHTS, check_name
from counterfoil_lab.world import FACTORS, UNSAID


@cache
def lexicon() -> Lexicon:
    """The wardrobe's vocabulary as word lists, so that the painter knows every word that is proposed."""
    spoken = {name: tuple(value for value in values if value != UNSAID.get(name)) for name, values in FACTORS.items()}
    return Lexicon(
        name="wardrobe",
        domain=tuple(MEDIUMS.values()),
        domain_words=tuple(opening.split()[1] for opening in GENERIC),
        subject={"garments": spoken["garment"]},
        object={"companions": spoken["object"]},
        background=tuple(PLACES.values()),
        adjective={kind: spoken[kind] for kind in ("colour", "texture", "material")},
        weather=tuple(phrase for phrase in SKIES.values() if phrase),
        insert=("texture",),
        leave_out=("texture", "object", "weather"),
        one_each=True,
    )


def captioner(name: str, *, beams: int = 1) -> TransformersCaptioner:
    """The lab's BLIP, which names every attribute of a scene: lab:blip."""
    folder = WEIGHTS / check_name(name, ("blip",))
    return transformers_captioner(str(folder), CaptionOptions(min_tokens=0, max_tokens=30, beams=beams, prefix=""))


def rewriter(
    name: str,
    *,
    proposals: int = PROPOSALS,
    kinds: Sequence[str] | None = None,
    adapter: str | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 32,
    batch: int = 8,
    dtype: Dtype = "float32",
) -> LexiconRewriter | PromptedRewriter:
    """The lab's rewriters, whose words its painter knows: lab:lexicon (word lists) and lab:rewriter (a small language model).

    `kinds` are the kinds of adjectives that lab:lexicon changes: colour, texture and material. The other options are those of
    `llm`, for lab:rewriter.
    """
    if check_name(name, ("lexicon", "rewriter")) == "lexicon":
        return LexiconRewriter(lexicon(), proposals=proposals, kinds=kinds)
    options = LlmOptions(temperature, top_p, max_tokens, batch, adapter=adapter, proposals=proposals, dtype=dtype)
    return llm_rewriter(str(WEIGHTS / "rewriter"), options)
