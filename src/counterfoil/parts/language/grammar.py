"""Read a caption: roles of its phrases, factors of its words.

Captions are short and alike: "a photo of a brown dog sitting on a couch next to a window in the rain". Short rules that suit
captions tag each word with a part of speech. Runs of determiners, adjectives and nouns are noun phrases; position, the
preposition before them and word lists decide their roles. Every word gets the set of factors that a change of it may count
as; words that no list knows get all factors that their place allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from counterfoil.parts.language.english import Token, join_phrases, small_words, tokenise
from counterfoil.parts.language.lexicon import PREPOSITIONS, Lexicon

FACTORS: Final = ("subject", "object", "background", "adjective", "domain", "weather")
"""The factors of a caption that can be rewritten."""

Tag = Literal["determiner", "adjective", "noun", "verb", "adverb", "preposition", "conjunction", "small", "mark"]

_ALL: Final = frozenset(FACTORS)
_COLLECTIVES: Final = small_words("collectives")
_DRAWN: Final = small_words("drawn")
_OPENERS: Final = frozenset({"of", "showing", "depicting", "shows"})
_STYLES: Final = frozenset({"in the style of", "as"})
_BESIDE: Final = frozenset({"next to", "beside", "near", "with", "by", "close to", "alongside", "of", "holding", "without"})
_IN_BACKGROUND: Final = frozenset({"background", "backdrop", "distance"})


@dataclass(frozen=True)
class Word:
    """A word with its part of speech and the factors it may be about."""

    token: Token
    tag: Tag
    admits: frozenset[str]  # the factors that a change of this word may count as
    has_meaning: bool  # by itself, as articles and prepositions do not

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
class ParsedCaption:
    """A caption with its words and noun phrases."""

    text: str
    words: tuple[Word, ...]
    phrases: tuple[Phrase, ...]

    def having(self, role: str) -> list[Phrase]:
        """The phrases of one role, in order."""
        return [phrase for phrase in self.phrases if phrase.role == role]


def parse(text: str, lexicon: Lexicon) -> ParsedCaption:
    """Read a caption by the words of a lexicon."""
    return _Parser(text, join_phrases(tokenise(text), lexicon.phrases, lexicon.longest), lexicon).parse()


# Parts of speech

_SMALL: Final[tuple[tuple[frozenset[str], Tag], ...]] = (
    (small_words("determiners"), "determiner"),
    (small_words("conjunctions"), "conjunction"),
    (small_words("small_words"), "small"),
    (small_words("adverbs"), "adverb"),
    (PREPOSITIONS, "preposition"),
)
_PLACE_ADVERBS: Final = PREPOSITIONS | {"outside", "inside", "around"}
_NOMINAL: Final = ("determiner", "adjective", "noun")


def _tags(words: list[str], lexicon: Lexicon) -> list[Tag]:
    """One part of speech per word."""
    tags = [_tag(word, lexicon) for word in words]
    for at, word in enumerate(words):
        before = tags[at - 1] if at else "mark"
        after = tags[at + 1] if at + 1 < len(tags) else "mark"
        if tags[at] == "verb" and before in ("determiner", "adjective") and after in ("noun", "adjective"):
            tags[at] = "adjective"  # "a sleeping dog", "the paved road"
        elif tags[at] == "verb" and before in ("determiner", "adjective"):
            tags[at] = "noun"  # "a stand", "a park"
        elif tags[at] == "verb" and _is_listed(word, lexicon) and before != "noun":
            tags[at] = "noun"
        elif tags[at] == "adverb" and word in _PLACE_ADVERBS and after in _NOMINAL:
            tags[at] = "preposition"
        elif tags[at] == "determiner" and word == "that" and after in ("small", "verb"):
            tags[at] = "small"  # "a dog that is …"
    return tags


def _tag(word: str, lexicon: Lexicon) -> Tag:
    """The part of speech of a word by itself."""
    if not any(letter.isalnum() for letter in word):
        return "mark"
    for words, tag in _SMALL:
        if word in words:
            return tag
    if word in lexicon.kinds:
        return "adjective"
    if word in small_words("verbs"):
        return "verb"
    if _is_listed(word, lexicon):
        return "noun"
    last = word.rpartition(" ")[2]
    if last.endswith("ing") and len(last) > 4 and last not in small_words("nouns_in_ing"):
        return "verb"
    if last.endswith("ed") and len(last) > 3 and last not in small_words("nouns_in_ed") and "-" not in last:
        return "verb"
    if last.endswith("ly") and len(last) > 4 and last not in ("family", "butterfly", "belly", "jelly"):
        return "adverb"
    return "noun"


def _is_listed(word: str, lexicon: Lexicon) -> bool:
    return word in lexicon.surroundings or word in lexicon.media or word in lexicon.skies or lexicon.singular(word) is not None


# Noun phrases, their roles, and the factors of words


class _Parser:
    def __init__(self, text: str, tokens: list[Token], lexicon: Lexicon) -> None:
        self.text, self.tokens, self.lexicon = text, tokens, lexicon
        self.words = [token.text for token in tokens]
        self.tags = _tags(self.words, lexicon)
        self.admits = [self._outside_phrases(at) for at in range(len(tokens))]
        self.phrases: list[Phrase] = []

    def parse(self) -> ParsedCaption:
        has_subject = False
        for start, end in self._noun_phrases():
            phrase = self._phrase(start, end, has_subject=has_subject)
            has_subject |= phrase.role == "subject"
            self.phrases.append(phrase)
            self._admit(phrase)
        empty = _COLLECTIVES | _IN_BACKGROUND | set(self.lexicon.time_words)
        rows = zip(self.tokens, self.tags, self.admits, strict=True)
        words = tuple(
            Word(token, tag, admits, tag in ("adjective", "noun", "verb", "adverb") and token.text not in empty)
            for token, tag, admits in rows
        )
        return ParsedCaption(self.text, words, tuple(self.phrases))

    def _noun_phrases(self) -> list[tuple[int, int]]:
        """Start and end of each run of determiners, adjectives and nouns."""
        spans, at, count = [], 0, len(self.words)
        while at < count:
            if self.tags[at] not in _NOMINAL:
                at += 1
                continue
            start, has_noun = at, False
            while at < count:
                if self.tags[at] == "determiner" and at > start:
                    break
                if self.tags[at] in _NOMINAL:
                    has_noun |= self.tags[at] == "noun"
                elif has_noun or not self._links_adjectives(at):
                    break
                at += 1
            spans.append((start, at))
        return spans

    def _links_adjectives(self, at: int) -> bool:
        """Recognise the "and" of "a red and blue ball", the comma of "a big, brown dog"."""
        between = self.words[at] in ("and", ",", "&") and 0 < at < len(self.words) - 1
        return between and self.tags[at - 1] == "adjective" and self.tags[at + 1] == "adjective"

    def _phrase(self, start: int, end: int, *, has_subject: bool) -> Phrase:
        head = self._head(start, end)
        governed = start > 0 and self.tags[start - 1] == "preposition"
        preposition = self.words[start - 1] if governed else ""
        role = self._role(start, head, end, preposition, has_subject=has_subject)
        return Phrase(role, start - 1 if governed else start, start, head, end, preposition)

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
        if any(word in lexicon.media for word in self.words[start : head + 1]):
            opens = not has_subject and after in _OPENERS
            trails = has_subject and (preposition in _STYLES or self._after_mark(start) or self._after_drawing(start))
            if opens or trails:
                return "domain"
        if preposition in _STYLES or self._after_drawing(start):
            return "domain"
        if self._is_weather(start, head, preposition):
            return "weather"
        previous = self.phrases[-1] if self.phrases else None
        after_domain = preposition == "of" and previous is not None and previous.role == "domain"
        if not has_subject and (not preposition or after_domain):
            return "collective" if noun in _COLLECTIVES and after == "of" else "subject"
        if preposition == "of" and previous is not None and previous.end == start - 1:
            if previous.role == "collective":
                return "object" if has_subject else "subject"
            return "background" if previous.role == "background" or noun in lexicon.surroundings else "object"
        joins = previous is not None and start - previous.end == 1 and self.words[start - 1] in ("and", "&", ",")
        if joins and previous is not None and previous.role in ("subject", "object") and noun not in lexicon.surroundings:
            return previous.role
        if noun in _COLLECTIVES and after == "of":
            return "collective"
        if noun in lexicon.surroundings and not (preposition in _BESIDE - {"by", "near"} and lexicon.singular(noun)):
            return "background"
        return "object" if has_subject else "subject"

    def _is_weather(self, start: int, head: int, preposition: str) -> bool:
        noun, lexicon = self.words[head], self.lexicon
        if noun in lexicon.time_words:
            return True
        if noun in lexicon.skies:
            return noun not in lexicon.surroundings or preposition in ("in", "during", "under", "")
        return noun == "sky" and any(word in lexicon.skies for word in self.words[start:head])

    def _after_mark(self, start: int) -> bool:
        return start > 0 and self.tags[start - 1] == "mark"

    def _after_drawing(self, start: int) -> bool:
        before = range(max(0, start - 2), start)
        return any(self.words[at] in _DRAWN and self.tags[at] == "verb" for at in before)

    def _admit(self, phrase: Phrase) -> None:
        """Set the factors that the words of a phrase may be about."""
        noun, lexicon = self.words[phrase.head], self.lexicon
        own = frozenset({phrase.role}) if phrase.role in _ALL else frozenset({"subject", "object"})
        previous = self.phrases[-2].role if len(self.phrases) > 1 else ""
        if phrase.role == "object":
            unlisted = not self._is_noun_too(noun) and noun not in lexicon.skies
            if unlisted and phrase.preposition and phrase.preposition not in ("with", "of", "for"):
                own |= {"background"}
            if phrase.preposition == "of" and previous == "subject":
                own |= {"subject"}
        if phrase.role == "background" and (
            not phrase.preposition or phrase.preposition in _BESIDE or lexicon.singular(noun) is not None
        ):
            own |= {"object"}
        if phrase.role in ("background", "weather") and noun in lexicon.either:
            own |= {"weather", "background"}
        if phrase.role == "subject" and self.words[phrase.noun_first - 1 : phrase.noun_first] == ["and"]:
            own |= {"object"}
        for at in range(phrase.noun_first, phrase.end):
            self.admits[at] = self._within(at, phrase, own)
        if noun in _IN_BACKGROUND and previous == "object":
            self._move_to_background()

    def _within(self, at: int, phrase: Phrase, own: frozenset[str]) -> frozenset[str]:
        """The factors of one word of a phrase that is about `own`."""
        if self.tags[at] in ("determiner", "conjunction", "mark"):
            return _ALL
        if at == phrase.head:
            return own if self.tags[at] == "noun" else own | {"adjective"}
        inside = own & {"background", "domain", "weather"}
        if self.words[at] in self.lexicon.skies:
            return frozenset({"weather", "adjective"}) | inside
        if self.tags[at] == "adjective":
            return frozenset({"adjective"}) | inside
        return own | {"adjective"}  # a noun before a noun: "tennis ball", "denim jacket"

    def _move_to_background(self) -> None:
        """Make "mountains" background in "with mountains in the background"."""
        phrase = self.phrases[-2]
        self.phrases[-2] = replace(phrase, role="background")
        for at in range(phrase.noun_first, phrase.end):
            self.admits[at] = self.admits[at] | {"background"}

    def _outside_phrases(self, at: int) -> frozenset[str]:
        """The factors of a word that is in no noun phrase."""
        word = self.words[at]
        if word in self.lexicon.skies:
            return frozenset({"weather"})
        if word in _DRAWN:
            return frozenset({"domain"})
        if self.tags[at] in ("verb", "adverb") and word not in PREPOSITIONS:
            return frozenset()
        return _ALL
