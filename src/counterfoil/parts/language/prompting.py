"""What a language model is asked, in the styles it may know: instructions with numbered answers, or the lab's one-liners.

An adapter remembers the style it was trained in, so that asking and training never differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import RewriteRequest
from counterfoil.parts.language.factors import FACTORS

CHANGES: Final[dict[str, str]] = {
    "subject": "Replace the main subject, the person, animal or thing that the caption is about, with another one.",
    "object": "Replace one object other than the main subject with another one, or add one if there is none.",
    "background": "Replace the background, the place or the surroundings, with another one, or add one if there is none.",
    "adjective": "Replace one adjective, such as a colour, size or material, with another one, or add one if there is none.",
    "domain": "Replace what kind of picture it is, such as photo, sketch or oil painting, with another one.",
    "weather": "Replace the weather with another one, or add one if there is none.",
}
"""The instruction for each factor."""

EXAMPLES: Final[dict[str, str]] = {
    "subject": "a photo of a cat lying on a red sofa in a living room",
    "object": "a photo of a dog lying on a red bench in a living room",
    "background": "a photo of a dog lying on a red sofa in a garden",
    "adjective": "a photo of a dog lying on a blue sofa in a living room",
    "domain": "a pencil sketch of a dog lying on a red sofa in a living room",
    "weather": "a photo of a dog lying on a red sofa in a living room in the rain",
}
"""What becomes of the example caption for each factor."""
EXAMPLE: Final = "a photo of a dog lying on a red sofa in a living room"
HEADER: Final = "Variations:"


@dataclass(frozen=True)
class Style:
    """A way of asking. `words` are the model's own words for a factor; one is used in turn for each variation."""

    name: str
    numbered: bool  # whether one answer holds all variations as numbered lines, or just one caption
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def turns(self, request: RewriteRequest, variations: int) -> list[str]:
        """The factor's name for each time the model is asked."""
        names = self.words.get(request.factor, (request.factor,))
        return [names[turn % len(names)] for turn in range(1 if self.numbered else variations)]

    def prompt(self, caption: str, factor: str, variations: int, tokenizer: Any = None) -> str:
        """The text that the model goes on with; by the tokenizer's chat template where it has one."""
        if not self.numbered:
            return f"{factor} : {caption} =>"
        text = instruction(caption, factor, variations)
        if getattr(tokenizer, "chat_template", None):
            messages = [{"role": "user", "content": text}]
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        return f"### Instruction:\n{text}\n\n### {HEADER}\n"

    def answer(self, edits: Sequence[str]) -> str:
        """What a model is trained to say to a prompt."""
        return "\n".join(f"{number}. {edit}" for number, edit in enumerate(edits, 1)) if self.numbered else edits[0]


def instruction(caption: str, factor: str, variations: int) -> str:
    """The task in words, with an example."""
    return (
        f"Write {variations} variations of a caption that differ from it in one thing only. {CHANGES[factor]} "
        "Keep every other word as it is. Answer with a numbered list of captions and nothing else.\n"
        f"Example caption: {EXAMPLE}\nExample variation: 1. {EXAMPLES[factor]}\nCaption: {caption}"
    )


STYLES: Final[dict[str, Style]] = {
    "instruct": Style("instruct", numbered=True),
    "plain": Style("plain", numbered=False),
    "wardrobe": Style(
        "wardrobe", numbered=False, words={"subject": ("garment",), "adjective": ("colour", "texture", "material")}
    ),
}


def style(name: str) -> Style:
    """The style of that name."""
    if name not in STYLES:
        raise BadPart(f"rewriter: no style of asking is called {name!r}; styles are {', '.join(STYLES)}")
    return STYLES[name]


assert set(CHANGES) == set(EXAMPLES) == set(FACTORS)
