"""Says for each word of a caption what part of speech it is likely to be: short rules that suit captions, not all of English."""

from __future__ import annotations

from typing import Final, Literal

from counterfoil.parts.language.closed import closed
from counterfoil.parts.language.lexicon import PREPOSITIONS, Lexicon
from counterfoil.parts.language.tokens import Token

Tag = Literal["determiner", "adjective", "noun", "verb", "adverb", "preposition", "conjunction", "small", "mark"]

DETERMINERS: Final = closed("determiners")
CONJUNCTIONS: Final = closed("conjunctions")
SMALL: Final = closed("small_words")
ADVERBS: Final = closed("adverbs")
VERBS: Final = closed("verbs")
_NOUNS_IN_ING: Final = closed("nouns_in_ing")
_NOUNS_IN_ED: Final = closed("nouns_in_ed")
_NOMINAL: Final = ("determiner", "adjective", "noun")


def tag(tokens: list[Token], lexicon: Lexicon) -> list[Tag]:
    """One tag a token."""
    tags = [_alone(token.text, lexicon) for token in tokens]
    for at, token in enumerate(tokens):
        before = tags[at - 1] if at else "mark"
        after = tags[at + 1] if at + 1 < len(tags) else "mark"
        if tags[at] == "verb" and before in ("determiner", "adjective") and after in ("noun", "adjective"):
            tags[at] = "adjective"  # "a sleeping dog", "the paved road"
        elif tags[at] == "verb" and before in ("determiner", "adjective"):
            tags[at] = "noun"  # "a stand", "a park"
        elif tags[at] == "verb" and _is_listed(token.text, lexicon) and before != "noun":
            tags[at] = "noun"
        elif tags[at] == "adverb" and token.text in PREPOSITIONS | {"outside", "inside", "around"} and after in _NOMINAL:
            tags[at] = "preposition"
        elif tags[at] == "determiner" and token.text == "that" and after in ("small", "verb"):
            tags[at] = "small"  # "a dog that is …"
    return tags


def _alone(word: str, lexicon: Lexicon) -> Tag:
    if not any(letter.isalnum() for letter in word):
        return "mark"
    for known, found in _CLOSED:
        if word in known:
            return found
    if word in PREPOSITIONS:
        return "preposition"
    if word in lexicon.kinds:
        return "adjective"
    if word in VERBS:
        return "verb"
    if _is_listed(word, lexicon):
        return "noun"
    last = word.rpartition(" ")[2]
    if last.endswith("ing") and len(last) > 4 and last not in _NOUNS_IN_ING:
        return "verb"
    if last.endswith("ed") and len(last) > 3 and last not in _NOUNS_IN_ED and "-" not in last:
        return "verb"
    if last.endswith("ly") and len(last) > 4 and last not in ("family", "butterfly", "belly", "jelly"):
        return "adverb"
    return "noun"


def _is_listed(word: str, lexicon: Lexicon) -> bool:
    return word in lexicon.surroundings or word in lexicon.media or word in lexicon.skies or lexicon.singular(word) is not None


_CLOSED: Final[tuple[tuple[frozenset[str], Tag], ...]] = (
    (DETERMINERS, "determiner"),
    (CONJUNCTIONS, "conjunction"),
    (SMALL, "small"),
    (ADVERBS, "adverb"),
)
