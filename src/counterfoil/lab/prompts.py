"""Texts beside the grammar's full captions that the lab's language models know: captions with gaps, and the rewriter's prompt."""

from __future__ import annotations

from typing import Final

from counterfoil.lab.captions import COMPANIONS, MEDIUMS, PLACES, SKIES
from counterfoil.lab.vocabulary import FACTORS, UNSAID

GENERIC: Final = ("an image of", "a picture of")
"""Openings of a caption that does not say its domain."""
THING: Final = "thing"
"""What a caption that does not name the garment says."""
SPOKEN: Final = {"texture": "plain", "object": "next to nothing", "weather": "in clear weather"}
"""How a caption with gaps says the values that full captions leave unsaid."""
ARROW: Final = "=>"


def single(factor: str, value: str) -> str:
    """A caption that states one factor alone, for zero-shot questions: "an image of a red thing"."""
    said = SPOKEN[factor] if UNSAID.get(factor) == value else value
    if factor == "garment":
        return f"{GENERIC[0]} a {said}"
    if factor == "domain":
        return f"a {MEDIUMS[value]} of a {THING}"
    if factor in ("colour", "material", "texture"):
        return f"{GENERIC[0]} {'an' if said[0] in 'aeiou' else 'a'} {said} {THING}"
    phrases = {"background": PLACES, "object": COMPANIONS, "weather": SKIES}[factor]
    return f"{GENERIC[0]} a {THING} {phrases[value] or said}"


def singles(factor: str) -> list[str]:
    """One such caption for each value of a factor, in the vocabulary's order."""
    return [single(factor, value) for value in FACTORS[factor]]


def rewriter_prompt(factor: str, caption: str) -> str:
    """What the rewriter is given; it goes on with the caption in which that factor has another value."""
    return f"{factor} : {caption} {ARROW}"
