"""Finds the names of things in a sentence: singular or plural, with or without hyphens, under any of several names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_IRREGULAR = {"mouse": "mice", "knife": "knives", "loaf": "loaves", "shelf": "shelves", "leaf": "leaves", "scarf": "scarves"}
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'"})
_EDGE_BEFORE, _EDGE_AFTER = r"(?<![a-z0-9])", r"(?:'s)?(?![a-z0-9])"  # plain letters: other scripts may stand right beside a name


@dataclass(frozen=True)
class Mention:
    """Where a sentence names one of the choices."""

    choice: int
    start: int
    end: int


def plain(text: str) -> str:
    """A text as it is searched: no accents, capitals, hyphens or underscores; every other sign stays where it is."""
    folded = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).casefold()
    letters = (letter for letter in folded if not unicodedata.combining(letter))
    return re.sub(r"[\s\-_‐‑–]+", " ", "".join(letters)).strip()


def mentions(text: str, names: Sequence[Sequence[str]]) -> list[Mention]:
    """Where the choices are named in a plain text, in order. A longer name is not also a mention of one inside it."""
    found: list[Mention] = []
    patterns = [(choice, name) for choice, each in enumerate(names) for name in each if plain(name)]
    for choice, name in sorted(patterns, key=lambda pair: -len(plain(pair[1]))):
        for match in _pattern(name).finditer(text):
            if not any(match.start() < other.end and other.start < match.end() for other in found):
                found.append(Mention(choice, match.start(), match.end()))
    return sorted(found, key=lambda mention: mention.start)


def heads(names: Sequence[Sequence[str]]) -> list[list[str]]:
    """The nouns by which each choice may go for short, where they tell the choices apart: "mouse" for "computer mouse"."""
    short = [{_head(plain(name)) for name in each} - {plain(name) for name in each} for each in names]
    words = [{word for name in each for word in plain(name).split()} for each in names]
    return [
        sorted(head for head in own if not any(head in other for at, other in enumerate(words) if at != place))
        for place, own in enumerate(short)
    ]


@lru_cache(maxsize=4096)
def _pattern(name: str) -> re.Pattern[str]:
    forms = {form for form in _forms(plain(name)) if form}
    spaced = (_spaced(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(f"{_EDGE_BEFORE}(?:{'|'.join(spaced)}){_EDGE_AFTER}")


def _spaced(form: str) -> str:
    """A pattern that takes "tea pot" for "teapot" and "paintbrush" for "paint brush"; short words have to be as they are."""
    letters = form.replace(" ", "")
    if " " not in form and len(letters) < 6:
        return re.escape(form)
    return " ?".join(re.escape(letter) for letter in letters)


def _forms(name: str) -> set[str]:
    """The name in singular and plural; of "loaf of bread" it is the loaf that there are several of."""
    before, of, after = name.partition(" of ")
    words = before.split()
    if not words:
        return {name}
    lead, noun = " ".join(words[:-1]), words[-1]
    return {f"{lead} {form}{of}{after}".strip() for form in {noun, *_plurals(noun), *_singulars(noun)}}


def _plurals(noun: str) -> set[str]:
    if noun in _IRREGULAR:
        return {_IRREGULAR[noun]}
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return {noun[:-1] + "ies"}
    return {noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")}


def _singulars(noun: str) -> set[str]:
    for one, many in _IRREGULAR.items():
        if noun == many:
            return {one}
    if noun.endswith("s") and not noun.endswith("ss") and len(noun) > 3:
        return {noun[:-1]}
    return set()


def _head(name: str) -> str:
    words = name.partition(" of ")[0].split()
    return words[-1] if words else name
