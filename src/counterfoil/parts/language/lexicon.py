"""Word lists by which captions are read and rewritten: those of a package, or a YAML file.

A package registers word lists of its own under the entry point group `counterfoil.lexicons`, as a function that returns a
`Lexicon`; `english` comes with Counterfoil.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadPart
from counterfoil.core.tables import parse_yaml, read_text
from counterfoil.parts.language.english import ARTICLES, plural, plurals, small_words, tokenise

Groups = Mapping[str, tuple[str, ...]]

PREPOSITIONS = small_words("prepositions")


@dataclass(frozen=True)
class Lexicon:
    """Words by what they say of an image. Those in a list are also proposed; those in `…_words` are only recognised."""

    name: str
    domain: tuple[str, ...] = ()
    subject: Groups = field(default_factory=dict)
    object: Groups = field(default_factory=dict)
    background: tuple[str, ...] = ()
    adjective: Groups = field(default_factory=dict)  # kinds in the order in which they stand before a noun
    weather: tuple[str, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)  # nouns read as another one
    domain_words: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    adjective_words: tuple[str, ...] = ()
    weather_words: tuple[str, ...] = ()
    time_words: tuple[str, ...] = ()
    insert: tuple[str, ...] = ()  # kinds of adjectives that may be put before a noun that has none of them
    leave_out: tuple[str, ...] = ()  # factors, or kinds of adjectives, that may be taken out of a caption
    companion: str = "next to"
    one_each: bool = False  # an adjective edit may touch one kind of adjective only

    @cached_property
    def media(self) -> frozenset[str]:
        """Names of what an image can be, such as photo and sketch."""
        return frozenset(self.domain) | frozenset(self.domain_words) | _plurals(self.domain)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each adjective; empty for those that are only recognised."""
        found = dict.fromkeys(self.adjective_words, "")
        found.update({word: kind for kind, words in self.adjective.items() for word in words})
        return found

    @cached_property
    def surroundings(self) -> frozenset[str]:
        """Nouns that name a place."""
        nouns = set(self.places) | {_noun(phrase) for phrase in self.background}
        nouns |= {_last(noun) for noun in nouns} - set(self.groups)
        return frozenset(nouns) | _plurals(nouns)

    @cached_property
    def skies(self) -> frozenset[str]:
        """Words that mean weather."""
        return frozenset(self.weather_words) | {_last(_noun(phrase)) for phrase in self.weather} - set(self.time_words)

    @cached_property
    def either(self) -> frozenset[str]:
        """Words that may mean the weather or the surroundings: snow, night, a day."""
        return (self.skies & self.surroundings) | frozenset(self.time_words)

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The nouns that may replace each noun, from the groups of objects and of subjects."""
        found: dict[str, tuple[str, ...]] = {}
        for groups in (self.object, self.subject):
            for words in groups.values():
                found.update(dict.fromkeys(words, words))
        for word, other in self.same.items():
            found[word] = tuple(noun for noun in found[other] if noun != other)
        return found

    @cached_property
    def phrases(self) -> frozenset[str]:
        """Every entry of several words, which is then read as one."""
        nouns = {*self.groups, *self.places, *self.media, *(_noun(phrase) for phrase in self.background)}
        everything = {*nouns, *_plurals(nouns), *self.kinds, *self.weather_words, *PREPOSITIONS}
        return frozenset(" ".join(token.text for token in tokenise(entry)) for entry in everything if len(tokenise(entry)) > 1)

    @cached_property
    def longest(self) -> int:
        """Words in the longest phrase."""
        return max((len(tokenise(phrase)) for phrase in self.phrases), default=1)

    def singular(self, noun: str) -> str | None:
        """The listed noun that this one is, or is the plural of; None if it is not listed."""
        return noun if noun in self.groups else self._singulars.get(noun)

    @cached_property
    def _singulars(self) -> dict[str, str]:
        return {many: noun for noun in self.groups for many in plurals(noun)}


def load(name: str) -> Lexicon:
    """The lexicon of that name, or of the YAML file at that path: `english`, `my-words.yaml`."""
    name = name or "english"
    known = {entry.name: entry for entry in entry_points(group="counterfoil.lexicons")}
    if name in known:
        try:
            found = known[name].load()()
        except ImportError as error:
            raise BadPart(f"lexicon:{name}: its package {known[name].value} cannot be imported ({error})") from None
        if not isinstance(found, Lexicon):
            raise BadPart(f"lexicon:{name}: {known[name].value} gives a {type(found).__name__}, not a Lexicon")
        return found
    path = Path(name).expanduser()
    if not path.is_file():
        raise BadPart(f"lexicon:{name}: no such word lists; name {', '.join(sorted(known))} or a YAML file (howto/rewriters)")
    return parse(read_text(path), name=name)


def fingerprint(name: str) -> dict[str, str]:
    """The hash of word lists read from a file; nothing for those of a package."""
    path = Path(name).expanduser()
    packaged = any(entry.name == name for entry in entry_points(group="counterfoil.lexicons"))
    return {} if packaged or not path.is_file() else {"words_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@cache
def english() -> Lexicon:
    """The lexicon of photographs in plain English."""
    return parse(
        files("counterfoil.parts.language").joinpath("words", "english.yaml").read_text(encoding="utf-8"), name="english"
    )


def parse(text: str, *, name: str) -> Lexicon:
    """The lexicon written in YAML, each section checked."""
    sections = parse_yaml(text, what=name)
    if not isinstance(sections, dict):
        raise BadPart(f"{name}: word lists are a mapping of sections, got {type(sections).__name__}; howto/rewriters shows one")
    known = [each.name for each in fields(Lexicon) if each.name != "name"]
    unknown = sorted(map(str, set(sections) - set(known)))
    if unknown:
        raise BadPart(f"{name}: no section is called {unknown[0]!r}; sections are {', '.join(known)}")
    found = Lexicon(name=name, **{section: _section(section, value, name) for section, value in sections.items()})
    listed = {word for groups in (found.subject, found.object) for words in groups.values() for word in words}
    for word, other in found.same.items():
        if other not in listed:
            raise BadPart(f"{name}: same reads {word!r} as {other!r}, which no group of subject or object lists; add it to one")
    return found


def _section(section: str, value: Any, name: str) -> Any:
    if section in ("subject", "object", "adjective"):
        if not isinstance(value, dict) or not all(_is_list(words) for words in value.values()):
            raise BadPart(f"{name}: {section} is a mapping of groups to lists of words, got {str(value)[:60]!r}")
        return {str(group): _entries(words) for group, words in value.items()}
    if section == "same":
        if not isinstance(value, dict):
            raise BadPart(f"{name}: same is a mapping of words to words, got {str(value)[:60]!r}")
        return {str(word).lower(): str(other).lower() for word, other in value.items()}
    if section == "companion":
        return str(value)
    if section == "one_each":
        return bool(value)
    if not _is_list(value):
        hint = "put quotes around words such as on and off"
        raise BadPart(f"{name}: {section} is a list of words, got {str(value)[:60]!r}; {hint}")
    return _entries(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _entries(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(" ".join(word.lower().split()) for word in words))


def _plurals(nouns: Iterable[str]) -> frozenset[str]:
    return frozenset(plural(noun) for noun in nouns if noun)


def _noun(phrase: str) -> str:
    """The noun of a phrase such as "in front of a brick wall"."""
    words = phrase.split()
    for at, word in enumerate(words):
        if word in ARTICLES:
            return " ".join(words[at + 1 :])
    while len(words) > 1 and words[0] in PREPOSITIONS:
        words.pop(0)
    return " ".join(words)


def _last(noun: str) -> str:
    """The word that a phrase is about: "field" of "wheat field" and of "field of flowers"."""
    words = noun.split()
    inner = next((at for at, word in enumerate(words) if at and word in PREPOSITIONS), len(words))
    return words[inner - 1] if words else ""
