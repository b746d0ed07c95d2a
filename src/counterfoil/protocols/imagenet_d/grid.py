"""Prompt grids: objects × nuisances, written as a small YAML file and planned without painting anything.

objects: imagenet-d-objects            a list by name, a file, or a mapping of names to ids
nuisances:
  background:                          a kind of nuisance: any name will do
    words: scenes                      a list by name, a file, a list, or a mapping of names to phrases
    templates: ["a photo of {a} {object} {nuisance}"]
fillers: {colour: [red, blue]}         further slots of templates, drawn for each prompt
count: 10000                           prompts at most
images: 1                              images of each prompt, with seeds of their own
exclude: [{object: wok, background: under water}]
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from counterfoil.core import spec as specs
from counterfoil.core.errors import BadData, BadSpec, did_you_mean
from counterfoil.core.naming import stable_hash
from counterfoil.core.spec import Strict
from counterfoil.core.tables import parse_yaml, read_table, read_text
from counterfoil.parts import labels
from counterfoil.parts.language.english import article

WORDS = Path(__file__).parent / "words"
ANY = "*"
T = TypeVar("T")


class Prompt(NamedTuple):
    """One image to paint."""

    prompt_id: str  # unique within the grid, and the same whatever else is sampled
    label: int  # of the object, in the grid's classes
    object: str
    kind: str  # of nuisance
    nuisance: str
    text: str


class GridObject(Strict):
    """One object. A classifier that names any of its ids is right."""

    name: str
    ids: tuple[str, ...]  # names or WordNet ids in a classifier's label space; its own name if it has no others
    phrase: str  # the words of a prompt
    lead: str = ""  # what stands before the phrase instead of "a" or "an", as in "a pair of"


def _objects(given: Any) -> list[dict[str, Any]]:
    """A list of names, a mapping from name to ids or to all that describes it, or a file or list of the package with one."""
    if isinstance(given, str):
        given = read_yaml(given, what="objects")
        given = given.get("objects", given) if isinstance(given, Mapping) else given
    if isinstance(given, list):
        given = dict.fromkeys(map(str, given))
    if not isinstance(given, Mapping) or not given:
        raise ValueError("none given; list names, or map each name to its ids")
    found, owners = [], dict[str, str]()
    for name, value in given.items():
        told = dict(value) if isinstance(value, Mapping) else {} if value is None else {"ids": value}
        ids = told.setdefault("ids", [name])
        told["ids"] = ids = list(map(str, [ids] if isinstance(ids, str | int) else ids))
        if not ids:
            raise ValueError(f"{name!r} has no ids; list the classes it stands for, or leave ids out to match it by name")
        for one in ids:
            if (other := owners.setdefault(labels.key(one), name)) != name:
                raise ValueError(f"{one!r} belongs to {other!r} and to {name!r}; give each id to one object")
        found.append({"name": str(name), "phrase": str(name), **told})
    if len(found) < 2:
        raise ValueError(f"only {found[0]['name']!r}; a test of a classifier needs two or more")
    return found


def _words(given: Any) -> dict[str, str]:
    """Words, each with its phrase in a prompt; or a file with them: YAML, CSV with a column `name`, or one word per line."""
    if isinstance(given, str):
        path = _find(given)
        try:
            if path.suffix.lower() in (".yaml", ".yml", ".json"):
                given = read_yaml(given, what="words")
                given = given.get("words", given) if isinstance(given, Mapping) else given
            elif path.suffix.lower() == ".csv":  # a scene's code name in words: `living_room-s` is a living room
                names = [row["name"].removesuffix("-s") for _, row in read_table(path, ["name"], what="words") if row["name"]]
                given = [name.replace("_", " ").replace("-", " ") for name in names]
            else:
                lines = [line.strip() for line in read_text(path).splitlines()]
                given = [line for line in lines if line and not line.startswith("#")]
        except BadData as error:
            raise ValueError(f"{error}.{_hint(str(path))}") from None
    if not isinstance(given, Mapping | list) or any(isinstance(word, list | Mapping) for word in given):
        raise ValueError(f"words are a list, a mapping from name to phrase, or a file; got {given!r:.60}")
    if not given:
        raise ValueError("no words; list at least one")
    phrases = given if isinstance(given, Mapping) else dict.fromkeys(given)
    seen: dict[str, Any] = {}
    for name in given:
        if labels.key(str(name)) in seen:
            raise ValueError(f"{seen[labels.key(str(name))]!r} and {name!r} are the same name; keep one of them")
        seen[labels.key(str(name))] = name
    return {str(name): str(name if phrase is None else phrase) for name, phrase in phrases.items()}


Words = Annotated[dict[str, str], BeforeValidator(_words)]


class Nuisance(Strict):
    """One kind of nuisance: its words, each with a phrase, and the sentences that use them."""

    words: Words
    templates: Annotated[tuple[str, ...], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        min_length=1
    )


class Grid(Strict):
    """Objects × nuisances. The same grid and seed give the same prompts, whatever else was sampled."""

    objects: Annotated[tuple[GridObject, ...], BeforeValidator(_objects)]
    nuisances: dict[str, Nuisance] = Field(min_length=1)
    fillers: dict[str, Words] = Field(default_factory=dict)
    count: int | None = Field(None, ge=1)
    images: int = Field(1, ge=1)
    exclude: tuple[dict[str, str], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Grid:
        """Refuse templates without object or nuisance, or with a slot that nothing fills, and exclusions of nothing."""
        for kind, nuisance in self.nuisances.items():
            if "/" in kind:
                raise ValueError(f"nuisances.{kind}: a kind's name has no slash in it")
            for template in nuisance.templates:
                try:
                    slots = [slot for _, slot, _, _ in Formatter().parse(template) if slot is not None]
                except ValueError as error:
                    raise ValueError(f"the template {template!r} cannot be read ({error}); write slots as {{object}}") from None
                for slot in ("object", "nuisance"):
                    if slot not in slots:
                        raise ValueError(f"the template {template!r} has no slot {{{slot}}}; write it where the {slot} belongs")
                if unknown := {*slots} - {"object", "nuisance", "a", *self.fillers}:
                    known = f"; fillers are {', '.join(self.fillers)}" if self.fillers else ""
                    raise ValueError(f"the template {template!r} has the slot {{{min(unknown)}}}, which nothing fills{known}")
        if len(self) == 0:
            raise ValueError(f"empty, all of its pairs are excluded; shorten exclude ({len(self._excluded)} entries)")
        return self

    @cached_property
    def _excluded(self) -> frozenset[tuple[str, str, str]]:
        """Object, kind and nuisance of what is excluded, "*" for any."""
        found = set()
        for entry in self.exclude:
            kinds = [key for key in entry if key != "object"]
            if len(kinds) != 1 or kinds[0] not in self.nuisances:
                pair = f"{{object: wok, {next(iter(self.nuisances))}: …}}"
                raise ValueError(f"exclude lists pairs such as {pair}, got {entry!r:.60}")
            name, word = entry.get("object", ANY), entry[kinds[0]]
            if name not in (ANY, *self.classes) or word not in (ANY, *self.nuisances[kinds[0]].words):
                raise ValueError(f"exclude names {name!r} and {kinds[0]} {word!r}, which are not both in the grid")
            found.add((name, kinds[0], word))
        return frozenset(found)

    @property
    def classes(self) -> list[str]:
        return [each.name for each in self.objects]

    def __len__(self) -> int:
        pairs = sum(
            self._allows(each.name, kind, word)
            for kind, nuisance in self.nuisances.items()
            for each in self.objects
            for word in nuisance.words
        )
        return min(self.count or pairs * self.images, pairs * self.images)

    def _allows(self, name: str, kind: str, word: str) -> bool:
        excluded = self._excluded
        return not (excluded and any((one, kind, other) in excluded for one in (name, ANY) for other in (word, ANY)))

    def prompts(self, seed: int = 0) -> Iterator[Prompt]:
        """The prompts to paint, one at a time, in the order in which they are painted; the whole grid is never listed.

        They go round the objects and, within each kind of nuisance, round the words, so that after any number of prompts every
        object was named as often as any other, to within one, and nearly so every word; kinds take turns.
        """
        return islice(self._turns(seed), len(self))

    def _turns(self, seed: int) -> Iterator[Prompt]:
        """Kinds take turns; a kind that is used up leaves its turns to the others."""
        turns = [self._rounds(at, kind, seed) for at, kind in enumerate(self.nuisances)]
        while turns:
            found = [(turn, next(turn, None)) for turn in turns]
            yield from (prompt for _, prompt in found if prompt is not None)
            turns = [turn for turn, prompt in found if prompt is not None]

    def _rounds(self, at_kind: int, kind: str, seed: int) -> Iterator[Prompt]:
        """All prompts of one kind: in each round every object once, with the words that come next.

        Word number i + r·objects + ⌊r·gcd / words⌋ for object i in round r: each pair once in as many rounds as there are words.
        """
        objects = _order(range(len(self.objects)), f"things {seed} {at_kind}")
        words = _order(list(self.nuisances[kind].words), f"words {seed} {at_kind}")
        common = math.gcd(len(objects), len(words))
        for number in range(self.images):
            for turn in range(len(words)):
                shift = turn * len(objects) + turn * common // len(words)
                for at, place in enumerate(objects):
                    word = words[(at + shift) % len(words)]
                    if self._allows(self.objects[place].name, kind, word):
                        yield self._prompt(place, kind, word, number, seed)

    def _prompt(self, place: int, kind: str, word: str, number: int, seed: int) -> Prompt:
        one, nuisance = self.objects[place], self.nuisances[kind]
        prompt_id = f"{kind}/{one.name}/{word}/{number}"
        template = nuisance.templates[stable_hash(seed, prompt_id, "template") % len(nuisance.templates)]
        values = {
            name: [*words.values()][stable_hash(seed, prompt_id, name) % len(words)] for name, words in self.fillers.items()
        }
        values |= {"object": one.phrase, "nuisance": nuisance.words[word]}
        return Prompt(prompt_id, place, one.name, kind, word, fill(template, values, lead=one.lead))


def _order(items: Sequence[T], seed: str) -> list[T]:
    order = list(items)
    random.Random(seed).shuffle(order)
    return order


def fill(template: str, values: Mapping[str, str], *, lead: str = "") -> str:
    """The sentence. `{a}` becomes `lead` or, without one, a or an by the sound that follows."""
    mark = "\0"
    text = template.format_map({**values, "a": mark})
    text = " ".join(text.replace(mark, f" {mark} ").split())
    while mark in text:
        before, _, after = text.partition(mark)
        text = f"{before}{lead or article(after)}{after}"
    return text


def read_grid(given: str | Mapping[str, Any]) -> Grid:
    """A grid from a file, from one of the package by name (`imagenet-d`, `lab`), or as plain values."""
    values: Any = read_yaml(given, what="grid") if isinstance(given, str) else given
    if not isinstance(values, Mapping):
        raise BadSpec(f"grid: a mapping with objects and nuisances, got {type(values).__name__}")
    try:
        grid: Grid = specs.parse(values, Grid)
    except BadSpec as error:
        raise BadSpec(f"grid: {error}") from None
    return grid


def read_yaml(given: str, *, what: str) -> Any:
    """The content of a YAML file, or of a list of the package."""
    path = _find(given)
    try:
        return parse_yaml(read_text(path), what=str(path))
    except BadData as error:
        raise BadSpec(f"{what}: {error}.{_hint(given)}") from None


def _find(given: str) -> Path:
    named = WORDS / f"{given}.yaml"
    return named if named.is_file() else Path(given).expanduser()


def _hint(given: str) -> str:
    names = sorted(path.stem for path in WORDS.glob("*.yaml"))
    return did_you_mean(given, names) or f" Lists of the package are {', '.join(names)}"
