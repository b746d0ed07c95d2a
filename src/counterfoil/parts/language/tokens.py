"""Cuts a caption into words and keeps where they stand, so that an edit leaves the rest of the text as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]")
_SPACE_BEFORE_STOP = re.compile(r"\s+([,.;:!?])")


@dataclass(frozen=True)
class Token:
    """A word, a fixed phrase or a mark, in lower case, and the place it has in the text."""

    text: str
    start: int
    end: int

    @property
    def is_mark(self) -> bool:
        """Whether it is punctuation."""
        return not any(letter.isalnum() for letter in self.text)


def tokenise(text: str) -> list[Token]:
    """The words and marks of a text, in order."""
    return [Token(found[0].lower().replace("’", "'"), found.start(), found.end()) for found in _TOKEN.finditer(text)]


def joined(tokens: list[Token], phrases: frozenset[str], longest: int) -> list[Token]:
    """The same tokens with those that form a known phrase made one, the longest phrase first."""
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        for length in range(min(longest, len(tokens) - at), 1, -1):
            part = tokens[at : at + length]
            phrase = " ".join(token.text for token in part)
            if phrase in phrases:
                result.append(Token(phrase, part[0].start, part[-1].end))
                at += length
                break
        else:
            result.append(tokens[at])
            at += 1
    return result


def tidy(text: str) -> str:
    """The text with single spaces, none of them before a stop."""
    return _SPACE_BEFORE_STOP.sub(r"\1", " ".join(text.split())).strip(" ,;")


def content(words: Iterable[str]) -> str:
    """Words as one phrase, without articles at its ends."""
    listed = list(words)
    while listed and listed[0] in ARTICLES:
        listed.pop(0)
    while listed and listed[-1] in ARTICLES:
        listed.pop()
    return " ".join(listed)


ARTICLES = frozenset({"a", "an", "the"})
