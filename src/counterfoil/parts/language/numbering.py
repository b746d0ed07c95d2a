"""Reads a language model's answer: numbered lines are captions, the rest is told apart by why it is none."""

from __future__ import annotations

import re
from typing import Final

from counterfoil.parts.contracts import Proposals, Rejection
from counterfoil.parts.language.soundness import unsound
from counterfoil.parts.language.tokens import tidy

_NUMBERED: Final = re.compile(r"^\s*(?:(?:\(?\d{1,3}\s*[.):\]]|[-*•])\s+)+(?P<text>\S.*)$")
_LABEL: Final = re.compile(r"^(?:caption|variation|edited caption|edit)\s*\d*\s*:\s*", re.IGNORECASE)
_FENCE: Final = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
_THINKING: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
LONGEST: Final = 600  # letters of an answer that are kept with a rejection


def parse(answer: str, factor: str, *, variations: int, cut_off: bool = False) -> Proposals:
    """The captions in an answer, at most `variations`; what is no list at all is one rejection that says why.

    `cut_off` says that the model ran out of tokens: its last line is then half a caption.
    """
    text = _FENCE.sub("", _THINKING.sub("", answer)).strip()
    lines = text.splitlines()
    found = [match["text"] for line in lines if (match := _NUMBERED.match(line))]
    rejections = []
    if cut_off and found and _NUMBERED.match(lines[-1]):
        rejections.append(Rejection(factor, found.pop()[:LONGEST], "nonsense", "cut off, the model ran out of tokens"))
    if not found and not rejections:
        return Proposals(rejections=(_unlisted(text, factor),))
    return Proposals(tuple(clean(line) for line in found[:variations]), tuple(rejections))


def clean(line: str) -> str:
    """A line without the quotes, emphasis and labels that models put around a caption."""
    text = _LABEL.sub("", line.replace("**", "").replace("__", "").strip())
    text = text.strip().strip("\"'“”`").strip()
    return tidy(text.removesuffix("."))


def _unlisted(text: str, factor: str) -> Rejection:
    if not text:
        return Rejection(factor, "", "nonsense", "an empty answer")
    reason, detail = unsound(text[:LONGEST]) or ("nonsense", "no numbered captions in the answer")
    return Rejection(factor, text[:LONGEST], reason, detail)
