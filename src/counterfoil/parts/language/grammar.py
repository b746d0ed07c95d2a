"""Reads a caption: which words name the subject, an object, the background, the domain or the weather, and which describe.

Captions are short and alike: "a photo of a brown dog sitting on a couch next to a window in the rain". A caption is cut into
noun phrases, each with the preposition before it; position and word lists say which role a phrase has. Every word then has
the set of factors that a change of it may count as. Words that no list knows get all factors that their place allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from counterfoil.parts.language.closed import closed
from counterfoil.parts.language.factors import FACTORS
from counterfoil.parts.language.lexicon import PREPOSITIONS, Lexicon
from counterfoil.parts.language.tagging import Tag, tag
from counterfoil.parts.language.tokens import Token, joined, tokenise

ALL: Final = frozenset(FACTORS)
COLLECTIVES: Final = closed("collectives")
_OPENERS: Final = frozenset({"of", "showing", "depicting", "shows"})
_DRAWN: Final = closed("drawn")
_STYLES: Final = frozenset({"in the style of", "as"})
_BESIDE: Final = frozenset({"next to", "beside", "near", "with", "by", "close to", "alongside", "of", "holding", "without"})
_IN_BACKGROUND: Final = frozenset({"background", "backdrop", "distance"})


@dataclass(frozen=True)
class Word:
    """A word with what it may be about."""

    token: Token
    tag: Tag
    admits: frozenset[str]  # the factors that a change of this word may count as
    says: bool  # whether it says something by itself, as articles and prepositions do not

    @property
    def text(self) -> str:
        """The word in lower case."""
        return self.token.text


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, by the numbers of its words. `first` is its preposition, if it has one, and `end` is one past its last."""

    role: str
    first: int
    noun_first: int
    head: int
    end: int
    preposition: str  # empty if a verb or nothing stands before it


@dataclass(frozen=True)
class Reading:
    """A caption as it was understood."""

    text: str
    words: tuple[Word, ...]
    phrases: tuple[Phrase, ...]

    def having(self, role: str) -> list[Phrase]:
        """The phrases of one role, in order."""
        return [phrase for phrase in self.phrases if phrase.role == role]


def read(text: str, lexicon: Lexicon) -> Reading:
    """What a caption says, by the words of a lexicon."""
    tokens = joined(tokenise(text), lexicon.phrases, lexicon.longest)
    tags = tag(tokens, lexicon)
    return _Reader(text, tokens, tags, lexicon).reading()


class _Reader:
    def __init__(self, text: str, tokens: list[Token], tags: list[Tag], lexicon: Lexicon) -> None:
        self.text, self.tokens, self.tags, self.lexicon = text, tokens, tags, lexicon
        self.words = [token.text for token in tokens]
        self.admits = [self._alone(at) for at in range(len(tokens))]
        self.phrases: list[Phrase] = []

    def reading(self) -> Reading:
        spans = self._noun_phrases()
        has_subject = False
        for start, end in spans:
            phrase = self._phrase(start, end, has_subject=has_subject)
            has_subject |= phrase.role == "subject"
            self.phrases.append(phrase)
            self._mark(phrase)
        says = [self.tags[at] in ("adjective", "noun", "verb", "adverb") for at in range(len(self.words))]
        for at, word in enumerate(self.words):
            if word in COLLECTIVES | _IN_BACKGROUND or word in self.lexicon.time_words:
                says[at] = False
        rows = zip(self.tokens, self.tags, self.admits, says, strict=True)
        return Reading(self.text, tuple(Word(*row) for row in rows), tuple(self.phrases))

    def _noun_phrases(self) -> list[tuple[int, int]]:
        """Where noun phrases begin and end: runs of determiners, adjectives and nouns."""
        spans, at, count = [], 0, len(self.words)
        while at < count:
            if self.tags[at] not in ("determiner", "adjective", "noun"):
                at += 1
                continue
            start, has_noun = at, False
            while at < count:
                if self.tags[at] == "determiner" and at > start:
                    break
                if self.tags[at] in ("determiner", "adjective", "noun"):
                    has_noun |= self.tags[at] == "noun"
                elif not (self._links_adjectives(at) and not has_noun):
                    break
                at += 1
            spans.append((start, at))
        return spans

    def _links_adjectives(self, at: int) -> bool:
        """Whether this is the "and" or the comma of "a red and blue ball", "a big, brown dog"."""
        between = self.words[at] in ("and", ",", "&") and 0 < at < len(self.words) - 1
        return between and self.tags[at - 1] == "adjective" and self.tags[at + 1] == "adjective"

    def _phrase(self, start: int, end: int, *, has_subject: bool) -> Phrase:
        head = self._head(start, end)
        governed = start > 0 and self.tags[start - 1] == "preposition"
        preposition = self.words[start - 1] if governed else ""
        first = start - 1 if governed else start
        role = self._role(start, head, end, preposition, has_subject=has_subject)
        return Phrase(role, first, start, head, end, preposition)

    def _head(self, start: int, end: int) -> int:
        last = end - 1
        if self.tags[last] == "noun" or self._is_noun_too(self.words[last]):
            if self.tags[last] == "adjective":
                self.tags[last] = "noun"  # "an orange" is the fruit
            return last
        nouns = [at for at in range(start, end) if self.tags[at] == "noun"]
        return nouns[-1] if nouns else last

    def _is_noun_too(self, word: str) -> bool:
        return self.lexicon.singular(word) is not None or word in self.lexicon.surroundings

    def _role(self, start: int, head: int, end: int, preposition: str, *, has_subject: bool) -> str:
        noun, lexicon = self.words[head], self.lexicon
        after = self.words[end] if end < len(self.words) else ""
        if noun in lexicon.media or any(word in lexicon.media for word in self.words[start:head]):
            opens = not has_subject and after in _OPENERS
            trails = has_subject and (preposition in _STYLES or self._after_mark(start) or self._after_drawing(start))
            if opens or trails:
                return "domain"
        if preposition in _STYLES or self._after_drawing(start):
            return "domain"
        if self._is_weather(start, head, preposition):
            return "weather"
        if not has_subject and (not preposition or (preposition == "of" and self._after_role("domain"))):
            return "collective" if noun in COLLECTIVES and after == "of" else "subject"
        previous = self.phrases[-1] if self.phrases else None
        joins = previous is not None and start - previous.end == 1 and self.words[start - 1] in ("and", "&", ",")
        if preposition == "of" and previous is not None and previous.end == start - 1:
            if previous.role == "collective":
                return "object" if has_subject else "subject"
            if previous.role == "background" or noun in lexicon.surroundings:
                return "background"
            return "object"
        if joins and previous is not None and previous.role in ("subject", "object") and noun not in lexicon.surroundings:
            return previous.role
        if noun in COLLECTIVES and after == "of":
            return "collective"
        if noun in lexicon.surroundings and not (preposition in _BESIDE - {"by", "near"} and lexicon.singular(noun)):
            return "background"
        return "object" if has_subject else "subject"

    def _is_weather(self, start: int, head: int, preposition: str) -> bool:
        noun, lexicon = self.words[head], self.lexicon
        described = any(word in lexicon.skies for word in self.words[start:head])
        if noun in lexicon.time_words:
            return True
        if noun in lexicon.skies:
            return noun not in lexicon.surroundings or preposition in ("in", "during", "under", "")
        return described and noun == "sky"

    def _after_mark(self, start: int) -> bool:
        return start > 0 and self.tags[start - 1] == "mark"

    def _after_drawing(self, start: int) -> bool:
        before = self.words[max(0, start - 2) : start]
        return any(word in _DRAWN and self.tags[start - len(before) + at] == "verb" for at, word in enumerate(before))

    def _after_role(self, role: str) -> bool:
        return bool(self.phrases) and self.phrases[-1].role == role

    def _mark(self, phrase: Phrase) -> None:
        """Write down what the words of a phrase may be about."""
        noun, lexicon = self.words[phrase.head], self.lexicon
        own = frozenset({phrase.role}) if phrase.role in ALL else frozenset({"subject", "object"})
        unlisted = not self._is_noun_too(noun) and noun not in lexicon.skies
        if phrase.role == "object" and unlisted and phrase.preposition and phrase.preposition not in ("with", "of", "for"):
            own |= {"background"}
        if phrase.role == "object" and phrase.preposition == "of" and self._follows("subject", phrase):
            own |= {"subject"}
        if phrase.role == "background":
            governed_by_verb = not phrase.preposition
            if governed_by_verb or phrase.preposition in _BESIDE or lexicon.singular(noun) is not None:
                own |= {"object"}
        if phrase.role in ("background", "weather") and noun in lexicon.either:
            own |= {"weather", "background"}
        if phrase.role == "subject" and self.words[phrase.noun_first - 1 : phrase.noun_first] == ["and"]:
            own |= {"object"}
        for at in range(phrase.noun_first, phrase.end):
            self.admits[at] = self._within(at, phrase, own)
        if noun in _IN_BACKGROUND and self.phrases[:-1] and self.phrases[-2].role == "object":
            self._move_to_background()

    def _within(self, at: int, phrase: Phrase, own: frozenset[str]) -> frozenset[str]:
        word = self.words[at]
        if self.tags[at] in ("determiner", "conjunction", "mark"):
            return ALL
        if at == phrase.head:
            return own if self.tags[at] == "noun" else own | {"adjective"}
        inside = own & {"background", "domain", "weather"}
        if word in self.lexicon.skies:
            return frozenset({"weather", "adjective"}) | inside
        if self.tags[at] == "adjective":
            return frozenset({"adjective"}) | inside
        return own | {"adjective"}  # a noun before a noun: "tennis ball", "denim jacket"

    def _follows(self, role: str, phrase: Phrase) -> bool:
        others = [other for other in self.phrases if other is not phrase]
        return bool(others) and others[-1].role == role

    def _move_to_background(self) -> None:
        """ "with mountains in the background" is about the background."""
        phrase = self.phrases[-2]
        moved = Phrase("background", phrase.first, phrase.noun_first, phrase.head, phrase.end, phrase.preposition)
        self.phrases[-2] = moved
        for at in range(phrase.noun_first, phrase.end):
            self.admits[at] = self.admits[at] | {"background"}

    def _alone(self, at: int) -> frozenset[str]:
        """What a word outside of noun phrases may be about."""
        word = self.words[at]
        if word in self.lexicon.skies:
            return frozenset({"weather"})
        if word in _DRAWN:
            return frozenset({"domain"})
        if self.tags[at] in ("verb", "adverb") and word not in PREPOSITIONS:
            return frozenset()
        return ALL
