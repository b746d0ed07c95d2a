"""The rewriter that needs no model: it reads a caption by grammar and swaps words by lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.factors import check_factor
from counterfoil.parts.language.grammar import Phrase, Reading, read
from counterfoil.parts.language.inflection import always_plural, article, plural, with_article
from counterfoil.parts.language.lexicon import Lexicon
from counterfoil.parts.language.tokens import tidy
from counterfoil.parts.language.wordnet import WordNet, find

VARIATIONS = 5


def lexicon_rewriter(
    words: str, *, variations: int = VARIATIONS, kinds: Sequence[str] | None = None, wordnet: str = "auto"
) -> LexiconRewriter:
    """Swaps words by grammar and word lists, no model needed: lexicon: (English), lexicon:wardrobe or lexicon:MY-WORDS.yaml.

    `variations` is the number of edits proposed for a factor. `kinds` are the kinds of adjectives to change, all unless
    given. `wordnet` says where WordNet's files are, for nouns that no list has: `auto` looks in the usual folders, `off`
    does without; which it was is recorded.
    """
    lexicon = lexicons.load(words)
    if variations < 1:
        raise BadPart(f"lexicon:{words}: variations is the number of edits for a factor, at least 1, got {variations}")
    unknown = sorted(set(kinds or ()) - set(lexicon.adjective))
    if unknown:
        raise BadPart(f"lexicon:{words}: no kind of adjective is called {unknown[0]!r}; kinds are {', '.join(lexicon.adjective)}")
    nouns = None if lexicon.name == "wardrobe" else find(wordnet)
    return LexiconRewriter(lexicon, variations=variations, kinds=tuple(kinds or lexicon.adjective), wordnet=nouns)


@dataclass(frozen=True)
class Swap:
    """Words put in the place of others: from letter `start` to letter `end` of the caption."""

    start: int
    end: int
    text: str


class LexiconRewriter:
    """Proposes edits drawn evenly from the places where a caption can change, and from the values each can take."""

    def __init__(
        self, lexicon: Lexicon, *, variations: int = VARIATIONS, kinds: Sequence[str] = (), wordnet: WordNet | None = None
    ) -> None:
        self.lexicon = lexicon
        self.variations = variations
        self.kinds = tuple(kinds) or tuple(lexicon.adjective)
        self.wordnet = wordnet

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        """The captions it proposes, one answer a request."""
        return [self._answer(request) for request in requests]

    def provenance(self) -> dict[str, str]:
        """Which words it uses."""
        where = str(self.wordnet.folder) if self.wordnet else "off"
        return {"words": self.lexicon.name, "wordnet": where, **lexicons.fingerprint(self.lexicon.name)}

    def _answer(self, request: RewriteRequest) -> Proposals:
        reading = read(request.caption, self.lexicon)
        places = list(self._places(reading, check_factor(request.factor)))
        drawn = random.Random(f"{request.seed}|{request.factor}|{request.caption}")
        for swaps in places:
            drawn.shuffle(swaps)
        drawn.shuffle(places)
        found: list[str] = []
        for turn in range(max(map(len, places), default=0)):  # the places take turns, so that each has its share
            for swaps in places:
                if turn < len(swaps) and len(found) < self.variations:
                    edited = _applied(request.caption, swaps[turn])
                    if edited not in found:
                        found.append(edited)
        if not found:
            return Proposals(rejections=(Rejection(request.factor, "", "no-idea", "no word of the lists fits in"),))
        return Proposals(tuple(found))

    def _places(self, reading: Reading, factor: str) -> Iterator[list[Swap]]:
        """Lists of swaps, one a place of the caption."""
        ways: dict[str, Callable[[Reading], Iterator[list[Swap]]]] = {
            "subject": self._subjects,
            "object": self._objects,
            "background": self._backgrounds,
            "adjective": self._adjectives,
            "domain": self._domains,
            "weather": self._weathers,
        }
        return (swaps for swaps in ways[factor](reading) if swaps)

    def _subjects(self, reading: Reading) -> Iterator[list[Swap]]:
        for phrase in reading.having("subject")[:1]:
            yield self._nouns(reading, phrase)

    def _objects(self, reading: Reading) -> Iterator[list[Swap]]:
        found = []
        for phrase in reading.having("object"):
            swaps = self._nouns(reading, phrase)
            if "object" in self.lexicon.leave_out and phrase.preposition == self.lexicon.companion:
                swaps.append(_out(reading, phrase))
            if swaps:
                found.append(swaps)
        yield from found
        if not found:
            words = [noun for group in self.lexicon.object.values() for noun in group if not always_plural(noun)]
            yield [_insert(self._after_places(reading), f"{self.lexicon.companion} {with_article(noun)}") for noun in words]

    def _backgrounds(self, reading: Reading) -> Iterator[list[Swap]]:
        phrases = [phrase for phrase in reading.having("background") if phrase.preposition]
        for phrase in phrases[:1]:
            start, end = _span(reading, phrase)
            now = reading.text[start:end].lower()
            yield [Swap(start, end, other) for other in self.lexicon.background if other != now]
        if not phrases:
            at = _before_weather(reading, self.lexicon.companion)
            yield [_insert(at, phrase) for phrase in self.lexicon.background]

    def _adjectives(self, reading: Reading) -> Iterator[list[Swap]]:
        for phrase in reading.phrases:
            if phrase.role not in ("subject", "object"):
                continue
            worn: dict[str, int] = {}
            for at in range(phrase.noun_first, phrase.head):
                kind = self.lexicon.kinds.get(reading.words[at].text, "")
                if reading.words[at].tag == "adjective" and kind in self.kinds:
                    worn[kind] = at
                    yield self._other_adjectives(reading, phrase, at, kind)
            if phrase.role == "subject" and self.lexicon.singular(reading.words[phrase.head].text):
                missing = [kind for kind in self.lexicon.insert if kind in self.kinds and kind not in worn]
                for kind in missing if self.lexicon.one_each else missing[: 0 if worn else None]:
                    yield [self._before_noun(reading, phrase, kind, word) for word in self.lexicon.adjective[kind]]

    def _domains(self, reading: Reading) -> Iterator[list[Swap]]:
        phrases = reading.having("domain")
        opening = next((phrase for phrase in phrases if phrase.noun_first == 0 or not phrase.preposition), None)
        if opening is not None:
            start, end = reading.words[opening.noun_first].token.start, reading.words[opening.end - 1].token.end
            now = reading.text[start:end].lower()
            yield [Swap(start, end, with_article(medium)) for medium in self.lexicon.domain if with_article(medium) != now]
        elif not phrases and reading.having("subject"):
            end, rest = _sentence_start(reading)
            yield [Swap(0, end, f"{with_article(medium)} of {rest}") for medium in self.lexicon.domain if medium != "photo"]

    def _weathers(self, reading: Reading) -> Iterator[list[Swap]]:
        phrases = reading.having("weather")
        for phrase in phrases[:1]:
            start, end = _span(reading, phrase)
            now = reading.text[start:end].lower()
            swaps = [Swap(start, end, other) for other in self.lexicon.weather if other != now]
            yield [*swaps, Swap(start, end, "")] if "weather" in self.lexicon.leave_out and phrase.preposition else swaps
        if not phrases and reading.words:
            yield [_insert(_end(reading), phrase) for phrase in self.lexicon.weather]

    def _nouns(self, reading: Reading, phrase: Phrase) -> list[Swap]:
        """The head of a phrase replaced by other nouns, in the same number."""
        noun = reading.words[phrase.head].text
        one = self.lexicon.singular(noun)
        others: Sequence[str] = self.lexicon.groups[one] if one else (self.wordnet.siblings(noun) if self.wordnet else ())
        many = one is not None and one != noun
        used = {word.text for word in reading.words}
        first = phrase.head  # with the nouns before it: "volleyball player" as a whole
        while first > phrase.noun_first and reading.words[first - 1].tag == "noun":
            first -= 1
        swaps = []
        for other in others:
            if other == one or other in used or (always_plural(other) != always_plural(one or noun) and not many):
                continue
            swaps.append(self._in_phrase(reading, phrase, first, plural(other) if many else other))
        return swaps

    def _other_adjectives(self, reading: Reading, phrase: Phrase, at: int, kind: str) -> list[Swap]:
        now = reading.words[at].text
        used = {word.text for word in reading.words[phrase.noun_first : phrase.end]}
        swaps = [self._in_phrase(reading, phrase, at, word) for word in self.lexicon.adjective[kind] if word not in used]
        if kind in self.lexicon.leave_out:
            after = reading.words[at + 1].token
            swaps.append(Swap(reading.words[at].token.start, after.start, ""))
        return [swap for swap in swaps if swap.text != now]

    def _in_phrase(self, reading: Reading, phrase: Phrase, at: int, word: str) -> Swap:
        """One word replaced, with the article before it made to fit."""
        token = reading.words[at].token
        end = token.end if reading.words[at].tag == "adjective" else reading.words[phrase.head].token.end
        before = reading.words[at - 1] if at > phrase.noun_first else None
        if before is not None and before.text in ("a", "an"):
            return Swap(before.token.start, end, with_article(word))
        return Swap(token.start, end, word)

    def _before_noun(self, reading: Reading, phrase: Phrase, kind: str, word: str) -> Swap:
        """An adjective put in where its kind belongs among those that are there."""
        order = list(self.lexicon.adjective)
        at = phrase.noun_first
        if reading.words[at].tag == "determiner":
            at += 1
        while at < phrase.head and reading.words[at].tag == "adjective":
            there = self.lexicon.kinds.get(reading.words[at].text, "")
            if there and order.index(there) > order.index(kind):
                break
            at += 1
        start = reading.words[at].token.start
        before = reading.words[at - 1] if at > phrase.noun_first else None
        if before is not None and before.text in ("a", "an"):
            return Swap(before.token.start, start, f"{with_article(word)} ")
        return Swap(start, start, f"{word} ")

    def _after_places(self, reading: Reading) -> int:
        """Where a phrase about a companion goes: before the weather, else at the end."""
        weather = [phrase for phrase in reading.having("weather") if phrase.preposition]
        return reading.words[weather[0].first - 1].token.end if weather and weather[0].first else _end(reading)


def _sentence_start(reading: Reading) -> tuple[int, str]:
    """How far a sentence is said anew to become a phrase, and how: "there is a dog", "a dog is sitting" lose their verb."""
    texts = [word.text for word in reading.words]
    if texts[:2] in (["there", "is"], ["there", "are"]):
        return reading.words[2].token.start, ""
    subject = reading.having("subject")[0]
    after = reading.words[subject.end : subject.end + 2]
    if subject.noun_first == 0 and len(after) == 2 and after[0].text in ("is", "are") and after[1].tag == "verb":
        said = reading.text[: reading.words[subject.end - 1].token.end]
        return after[0].token.end, said[:1].lower() + said[1:]
    return 0, ""


def _span(reading: Reading, phrase: Phrase) -> tuple[int, int]:
    return reading.words[phrase.first].token.start, reading.words[phrase.end - 1].token.end


def _out(reading: Reading, phrase: Phrase) -> Swap:
    return Swap(*_span(reading, phrase), "")


def _insert(at: int, phrase: str) -> Swap:
    return Swap(at, at, f" {phrase}")


def _end(reading: Reading) -> int:
    """After the last word, before a full stop."""
    return max((word.token.end for word in reading.words if not word.token.is_mark), default=0)


def _before_weather(reading: Reading, companion: str) -> int:
    """Where a phrase about the place goes: before companions and weather, else at the end."""
    last = [phrase for phrase in reading.phrases if phrase.role == "weather" or phrase.preposition == companion]
    return reading.words[last[0].first - 1].token.end if last and last[0].first else _end(reading)


def _applied(text: str, swap: Swap) -> str:
    before, after = text[: swap.start], text[swap.end :]
    if not swap.start and swap.text and after[:2] in ("A ", "An", "Th", "Tw"):
        after = after[:1].lower() + after[1:]  # it no longer begins the sentence
    # Taking a word out may leave the wrong article before the next one: "a orange bag".
    words = before.split()
    if not swap.text and words and words[-1].lower() in ("a", "an") and after.strip():
        before = f"{' '.join(words[:-1])} {article(after.split()[0])} "
    return tidy(before + swap.text + after)
