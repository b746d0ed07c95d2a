"""Rewrite captions by grammar and word lists, without a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.edits import check_factor
from counterfoil.parts.language.english import always_plural, article, plural, tidy, with_article
from counterfoil.parts.language.grammar import ParsedCaption, Phrase, parse
from counterfoil.parts.language.lexicon import Lexicon

PROPOSALS = 5


@dataclass(frozen=True)
class LexiconOptions:
    proposals: int = PROPOSALS
    kinds: Sequence[str] | None = None


def lexicon_rewriter(words: str, options: LexiconOptions) -> LexiconRewriter:
    """Swaps words by grammar and word lists, no model needed: lexicon: (English) or lexicon:MY-WORDS.yaml.

    `proposals` is the number of edits proposed per factor. `kinds` are the kinds of adjectives to change, all unless given.
    """
    return LexiconRewriter(lexicons.load(words), proposals=options.proposals, kinds=options.kinds)


@dataclass(frozen=True)
class Swap:
    """A text that replaces the letters from `start` to `end` of a caption."""

    start: int
    end: int
    text: str


class LexiconRewriter:
    """Proposes edits drawn evenly from the places where a caption can change, and from the values each can take."""

    def __init__(self, lexicon: Lexicon, *, proposals: int = PROPOSALS, kinds: Sequence[str] | None = None) -> None:
        if proposals < 1:
            raise BadPart(f"lexicon:{lexicon.name}: proposals is the number of edits per factor, at least 1, got {proposals}")
        unknown = sorted(set(kinds or ()) - set(lexicon.adjective))
        if unknown:
            known = ", ".join(lexicon.adjective)
            raise BadPart(f"lexicon:{lexicon.name}: no kind of adjective is called {unknown[0]!r}; kinds are {known}")
        self.lexicon = lexicon
        self.words = lexicon.name
        self.proposals = proposals
        self.kinds = tuple(kinds or lexicon.adjective)

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        return [self._propose(request) for request in requests]

    def provenance(self) -> dict[str, str]:
        return {"words": self.lexicon.name, **lexicons.fingerprint(self.lexicon.name)}

    def _propose(self, request: RewriteRequest) -> Proposals:
        caption = parse(request.caption, self.lexicon)
        places = list(self._places(caption, check_factor(request.factor)))
        drawn = random.Random(f"{request.seed}|{request.factor}|{request.caption}")
        for swaps in places:
            drawn.shuffle(swaps)
        drawn.shuffle(places)
        found: list[str] = []
        for turn in range(max(map(len, places), default=0)):  # the places take turns, so that each has its share
            for swaps in places:
                if turn < len(swaps) and len(found) < self.proposals:
                    edited = _apply(request.caption, swaps[turn])
                    if edited not in found:
                        found.append(edited)
        if not found:
            return Proposals(rejections=(Rejection(request.factor, "", "no-proposal", "no word of the lists fits in"),))
        return Proposals(tuple(found))

    def _places(self, caption: ParsedCaption, factor: str) -> Iterator[list[Swap]]:
        """Lists of swaps, one per place of the caption."""
        by_factor: dict[str, Callable[[ParsedCaption], Iterator[list[Swap]]]] = {
            "subject": self._subjects,
            "object": self._objects,
            "background": self._backgrounds,
            "adjective": self._adjectives,
            "domain": self._domains,
            "weather": self._weathers,
        }
        return (swaps for swaps in by_factor[factor](caption) if swaps)

    def _subjects(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        for phrase in caption.having("subject")[:1]:
            yield self._nouns(caption, phrase)

    def _objects(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        found = []
        for phrase in caption.having("object"):
            swaps = self._nouns(caption, phrase)
            if "object" in self.lexicon.leave_out and phrase.preposition == self.lexicon.companion:
                swaps.append(Swap(*_span(caption, phrase), ""))
            if swaps:
                found.append(swaps)
        yield from found
        if not found:
            words = [noun for group in self.lexicon.object.values() for noun in group if not always_plural(noun)]
            weather = [phrase for phrase in caption.having("weather") if phrase.preposition]
            at = _before(caption, weather)
            yield [_insert(at, f"{self.lexicon.companion} {with_article(noun)}") for noun in words]

    def _backgrounds(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        phrases = [phrase for phrase in caption.having("background") if phrase.preposition]
        for phrase in phrases[:1]:
            yield _others(caption, *_span(caption, phrase), self.lexicon.background)
        if not phrases:
            companion = self.lexicon.companion
            last = [each for each in caption.phrases if each.role == "weather" or each.preposition == companion]
            at = _before(caption, last)
            yield [_insert(at, phrase) for phrase in self.lexicon.background]

    def _adjectives(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        for phrase in caption.phrases:
            if phrase.role not in ("subject", "object"):
                continue
            present: set[str] = set()
            for at in range(phrase.noun_first, phrase.head):
                kind = self.lexicon.kinds.get(caption.words[at].text, "")
                if caption.words[at].tag == "adjective" and kind in self.kinds:
                    present.add(kind)
                    yield self._other_adjectives(caption, phrase, at, kind)
            if phrase.role == "subject" and self.lexicon.singular(caption.words[phrase.head].text):
                missing = [kind for kind in self.lexicon.insert if kind in self.kinds and kind not in present]
                for kind in missing if self.lexicon.one_each or not present else ():
                    yield [self._before_noun(caption, phrase, kind, word) for word in self.lexicon.adjective[kind]]

    def _domains(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        phrases = caption.having("domain")
        opening = next((phrase for phrase in phrases if phrase.noun_first == 0 or not phrase.preposition), None)
        media = [with_article(medium) for medium in self.lexicon.domain]
        if opening is not None:
            start, end = caption.words[opening.noun_first].token.start, caption.words[opening.end - 1].token.end
            yield _others(caption, start, end, media)
        elif not phrases and caption.having("subject"):
            end, rest = _sentence_start(caption)
            yield [Swap(0, end, f"{medium} of {rest}") for medium in media if medium != "a photo"]

    def _weathers(self, caption: ParsedCaption) -> Iterator[list[Swap]]:
        phrases = caption.having("weather")
        for phrase in phrases[:1]:
            start, end = _span(caption, phrase)
            gone = [Swap(start, end, "")] if "weather" in self.lexicon.leave_out and phrase.preposition else []
            yield [*_others(caption, start, end, self.lexicon.weather), *gone]
        if not phrases and caption.words:
            yield [_insert(_end(caption), phrase) for phrase in self.lexicon.weather]

    def _nouns(self, caption: ParsedCaption, phrase: Phrase) -> list[Swap]:
        """The head of a phrase replaced by other nouns, in the same number."""
        noun = caption.words[phrase.head].text
        one = self.lexicon.singular(noun)
        if one is None:
            return []
        is_plural = one != noun
        used = {word.text for word in caption.words}
        first = phrase.head  # with the nouns before it: "volleyball player" as a whole
        while first > phrase.noun_first and caption.words[first - 1].tag == "noun":
            first -= 1
        others = [other for other in self.lexicon.groups[one] if other != one and other not in used]
        fitting = [other for other in others if is_plural or always_plural(other) == always_plural(one)]
        return [self._in_phrase(caption, phrase, first, plural(other) if is_plural else other) for other in fitting]

    def _other_adjectives(self, caption: ParsedCaption, phrase: Phrase, at: int, kind: str) -> list[Swap]:
        used = {word.text for word in caption.words[phrase.noun_first : phrase.end]}
        swaps = [self._in_phrase(caption, phrase, at, word) for word in self.lexicon.adjective[kind] if word not in used]
        if kind in self.lexicon.leave_out:
            swaps.append(Swap(caption.words[at].token.start, caption.words[at + 1].token.start, ""))
        return swaps

    def _in_phrase(self, caption: ParsedCaption, phrase: Phrase, at: int, word: str) -> Swap:
        """One word replaced, with the article before it made to fit."""
        token = caption.words[at].token
        end = token.end if caption.words[at].tag == "adjective" else caption.words[phrase.head].token.end
        before = caption.words[at - 1] if at > phrase.noun_first else None
        if before is not None and before.text in ("a", "an"):
            return Swap(before.token.start, end, with_article(word))
        return Swap(token.start, end, word)

    def _before_noun(self, caption: ParsedCaption, phrase: Phrase, kind: str, word: str) -> Swap:
        """An adjective inserted where its kind belongs among those present."""
        order = list(self.lexicon.adjective)
        at = phrase.noun_first
        if caption.words[at].tag == "determiner":
            at += 1
        while at < phrase.head and caption.words[at].tag == "adjective":
            there = self.lexicon.kinds.get(caption.words[at].text, "")
            if there and order.index(there) > order.index(kind):
                break
            at += 1
        start = caption.words[at].token.start
        before = caption.words[at - 1] if at > phrase.noun_first else None
        if before is not None and before.text in ("a", "an"):
            return Swap(before.token.start, start, f"{with_article(word)} ")
        return Swap(start, start, f"{word} ")


def _sentence_start(caption: ParsedCaption) -> tuple[int, str]:
    """End of the part that is replaced to make a sentence a phrase, and its replacement: "there is a dog" loses its verb."""
    texts = [word.text for word in caption.words]
    if texts[:2] in (["there", "is"], ["there", "are"]):
        return caption.words[2].token.start, ""
    subject = caption.having("subject")[0]
    after = caption.words[subject.end : subject.end + 2]
    if subject.noun_first == 0 and len(after) == 2 and after[0].text in ("is", "are") and after[1].tag == "verb":
        opening = caption.text[: caption.words[subject.end - 1].token.end]
        return after[0].token.end, opening[:1].lower() + opening[1:]
    return 0, ""


def _span(caption: ParsedCaption, phrase: Phrase) -> tuple[int, int]:
    return caption.words[phrase.first].token.start, caption.words[phrase.end - 1].token.end


def _others(caption: ParsedCaption, start: int, end: int, values: Sequence[str]) -> list[Swap]:
    """Every value but the one that stands there."""
    return [Swap(start, end, value) for value in values if value != caption.text[start:end].lower()]


def _insert(at: int, phrase: str) -> Swap:
    return Swap(at, at, f" {phrase}")


def _before(caption: ParsedCaption, phrases: Sequence[Phrase]) -> int:
    """The end of the word before the first of these phrases; without any, the caption's end."""
    return caption.words[phrases[0].first - 1].token.end if phrases and phrases[0].first else _end(caption)


def _end(caption: ParsedCaption) -> int:
    """The end of the last word, before a full stop."""
    return max((word.token.end for word in caption.words if not word.token.is_mark), default=0)


def _apply(text: str, swap: Swap) -> str:
    before, after = text[: swap.start], text[swap.end :]
    if not swap.start and swap.text and after[:2] in ("A ", "An", "Th", "Tw"):
        after = after[:1].lower() + after[1:]  # it no longer begins the sentence
    # Taking a word out may leave the wrong article before the next one: "a orange bag".
    words = before.split()
    if not swap.text and words and words[-1].lower() in ("a", "an") and after.strip():
        before = f"{' '.join(words[:-1])} {article(after.split()[0])} "
    return tidy(before + swap.text + after)
