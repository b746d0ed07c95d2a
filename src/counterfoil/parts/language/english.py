"""Tokens, plurals, articles and small words of English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

ARTICLES = frozenset({"a", "an", "the"})

_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]")
_SPACE_BEFORE_STOP = re.compile(r"\s+([,.;:!?])")


@dataclass(frozen=True)
class Token:
    """A word, a fixed phrase or a mark in lower case, with its place in the text."""

    text: str
    start: int
    end: int

    @property
    def is_mark(self) -> bool:
        """Tell punctuation from words."""
        return not any(letter.isalnum() for letter in self.text)


def tokenise(text: str) -> list[Token]:
    """The words and marks of a text, in order."""
    return [Token(found[0].lower().replace("’", "'"), found.start(), found.end()) for found in _TOKEN.finditer(text)]


def join_phrases(tokens: list[Token], phrases: frozenset[str], longest: int) -> list[Token]:
    """The same tokens with those of a known phrase joined into one, the longest phrase first."""
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


def strip_articles(words: Iterable[str]) -> str:
    """Words as one phrase, without articles at its ends."""
    listed = list(words)
    while listed and listed[0] in ARTICLES:
        listed.pop(0)
    while listed and listed[-1] in ARTICLES:
        listed.pop()
    return " ".join(listed)


_SMALL_WORDS = yaml.safe_load(files("counterfoil.parts.language").joinpath("words", "small.yaml").read_text(encoding="utf-8"))


@cache
def small_words(section: str) -> frozenset[str]:
    """The words of one section of words/small.yaml: articles, prepositions, common verbs."""
    return frozenset(_SMALL_WORDS[section])


# "a" or "an" goes by sound, which the spelling hides in these beginnings.
_AN = re.compile(r"hour|honest|honou?r|heir|(?:mri|suv|lcd|led|rv|x-ray|xbox|mp3|mp4)\b|[fhlmnrsx](?:-|\b)|8|1[18](?!\d)")
_A = re.compile(r"uni(?:[cfoqstv]|lat)|unanim|u[bkr][aeiou]|us[aeu]|ut[eio]|e[uw]|on(?:e|ce)\b|u\b")


def article(word: str) -> str:
    """ "a" or "an", whichever goes before the word."""
    letters = unicodedata.normalize("NFKD", word.strip()).lower()
    if _AN.match(letters):
        return "an"
    return "an" if letters[:1] in tuple("aeiou") and not _A.match(letters) else "a"


def with_article(noun: str) -> str:
    """The noun with "a" or "an" before it."""
    return f"{article(noun)} {noun}"


_IRREGULAR = {"person": "people", "ox": "oxen", "goose": "geese", "die": "dice", "cactus": "cacti", "fungus": "fungi"}
_ENDINGS = (
    ("mouse", "mice"), ("child", "children"), ("foot", "feet"), ("tooth", "teeth"), ("knife", "knives"), ("wife", "wives"),
    ("life", "lives"), ("leaf", "leaves"), ("sheaf", "sheaves"), ("loaf", "loaves"), ("hoof", "hooves"), ("elf", "elves"),
    ("half", "halves"), ("calf", "calves"), ("wolf", "wolves"), ("scarf", "scarves"), ("thief", "thieves"),
)  # fmt: skip
_NOT_MEN = ("human", "ottoman", "caiman", "talisman", "shaman", "german", "roman", "norman", "doberman")
_WITH_OES = frozenset({"potato", "tomato", "mango", "buffalo", "volcano", "mosquito", "tornado", "torpedo", "hero", "domino"})
_BOTH_NUMBERS = frozenset({"sheep", "deer", "fish", "bison", "moose", "salmon", "trout", "shrimp", "aircraft"})


def plural(noun: str) -> str:
    """The plural of a noun; of a phrase, that of the word it is about: "loaves of bread"."""
    lead, head, rest = _split(noun)
    return f"{lead}{_plural(head)}{rest}"


def plurals(noun: str) -> frozenset[str]:
    """Every plural in use: "scarves" and "scarfs", "fish" and "fishes"."""
    lead, head, rest = _split(noun)
    return frozenset(f"{lead}{form}{rest}" for form in (_plural(head), _regular(head)))


def noun_forms(noun: str) -> frozenset[str]:
    """A noun in every number: itself, its plurals, and each word that it may be the plural of."""
    lead, head, rest = _split(noun)
    return plurals(noun) | {noun} | {f"{lead}{one}{rest}" for one in _singulars(head)}


def always_plural(noun: str) -> bool:
    """Tell nouns that take no "a", as in "a pair of trousers"."""
    head = _split(noun)[1]
    return head in small_words("unchanging") and head not in _BOTH_NUMBERS


def _split(noun: str) -> tuple[str, str, str]:
    """Words before the head of a noun phrase, the head, and "of …" after it."""
    before, of, after = noun.partition(" of ")
    lead, space, head = before.rpartition(" ")
    return lead + space, head, of + after


def _plural(noun: str) -> str:
    if noun in small_words("unchanging"):
        return noun
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith("man") and noun not in _NOT_MEN:
        return f"{noun[:-3]}men"
    for one, many in _ENDINGS:
        if noun.endswith(one):
            return noun.removesuffix(one) + many
    return f"{noun}es" if noun in _WITH_OES else _regular(noun)


def _regular(noun: str) -> str:
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def _singulars(noun: str) -> set[str]:
    """Every word whose plural is this noun; some of them are no words."""
    found = {one for one, many in _IRREGULAR.items() if many == noun}
    found |= {noun.removesuffix(many) + one for one, many in (*_ENDINGS, ("man", "men")) if noun.endswith(many)}
    if len(noun) > 3 and noun.endswith("s") and not noun.endswith("ss"):
        found |= {noun[:-1], noun[:-2] if noun.endswith("es") else noun[:-1]}
        found |= {f"{noun[:-3]}y"} if noun.endswith("ies") else set()
    return {one for one in found if one and _plural(one) == noun}
