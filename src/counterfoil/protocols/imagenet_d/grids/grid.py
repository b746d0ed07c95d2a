"""A grid as it is written down, and the prompts it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from counterfoil.core.errors import BadSpec
from counterfoil.core.lots import lot
from counterfoil.protocols.imagenet_d.grids import sampling as places
from counterfoil.protocols.imagenet_d.grids.objects import Thing, read_objects
from counterfoil.protocols.imagenet_d.grids.templates import check_template, filled
from counterfoil.protocols.imagenet_d.grids.words import named, read_words, read_yaml

Sampling = Literal["full", "random", "balanced"]
_KEYS = ("objects", "nuisances", "fillers", "sampling", "count", "images", "exclude")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One picture to paint."""

    prompt_id: str  # unique within the grid, and the same whatever else is sampled
    label: int  # of the object, in the grid's classes
    thing: str
    kind: str  # of nuisance
    nuisance: str
    number: int  # of several pictures for one object and nuisance, from 0
    text: str


@dataclass(frozen=True)
class Nuisance:
    """One kind of nuisance: its words, each with a phrase, and the sentences that say them."""

    kind: str
    words: Mapping[str, str]
    templates: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Objects × nuisances. The same grid and seed give the same prompts, whatever was sampled beside them."""

    things: tuple[Thing, ...]
    nuisances: tuple[Nuisance, ...]
    fillers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: Sampling = "balanced"
    count: int | None = None
    images: int = 1
    excluded: frozenset[tuple[str, str, str]] = frozenset()  # object, kind, nuisance; "*" for any

    @property
    def classes(self) -> list[str]:
        """The names of the objects."""
        return [thing.name for thing in self.things]

    @property
    def size(self) -> int:
        """How many pictures the whole grid has, excluded pairs counted out."""
        return sum(places.allowed_pairs(self, nuisance) for nuisance in self.nuisances) * self.images

    def __len__(self) -> int:
        return self.size if self.count is None or self.sampling == "full" else min(self.count, self.size)

    def allows(self, thing: str, kind: str, nuisance: str) -> bool:
        """Whether a pair is not among the impossible ones."""
        if not self.excluded:
            return True
        return not any((one, kind, word) in self.excluded for one in (thing, "*") for word in (nuisance, "*"))

    def prompts(self, seed: int = 0) -> Iterator[Prompt]:
        """The prompts to paint, one at a time."""
        for place in places.places(self, seed):
            yield self._prompt(place, seed)

    def _prompt(self, place: places.Place, seed: int) -> Prompt:
        nuisance, thing = self.nuisances[place.kind], self.things[place.thing]
        word, phrase = place.word, nuisance.words[place.word]
        prompt_id = f"{nuisance.kind}/{thing.name}/{word}/{place.number}"
        template = nuisance.templates[lot(seed, prompt_id, "template") % len(nuisance.templates)]
        values = {name: words[lot(seed, prompt_id, name) % len(words)] for name, words in self.fillers.items()}
        text = filled(template, {**values, "object": thing.spoken, "nuisance": phrase}, lead=thing.lead)
        return Prompt(prompt_id, place.thing, thing.name, nuisance.kind, word, place.number, text)


def read_grid(given: str | Mapping[str, Any]) -> Grid:
    """A grid from a file, from one of the package by name (`imagenet-d`, `lab`), or as plain values."""
    values: Any = given
    if isinstance(given, str):
        values = read_yaml(named(given) or Path(given).expanduser(), what="grid")
    if not isinstance(values, Mapping):
        raise BadSpec(f"grid: a mapping with objects and nuisances, got {type(values).__name__}")
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None:
        raise BadSpec(f"grid: unknown key {unknown!r}; keys are {', '.join(_KEYS)}")
    fillers = {
        str(name): tuple(read_words(words, what=f"grid: filler {name!r}").values()) for name, words in _pairs(values, "fillers")
    }
    nuisances = [_nuisance(str(kind), entry, fillers) for kind, entry in _pairs(values, "nuisances")]
    if not nuisances:
        raise BadSpec("grid: no nuisances; name at least one kind, with words and templates")
    things = tuple(read_objects(values.get("objects")))
    grid = Grid(
        things=things,
        nuisances=tuple(nuisances),
        fillers=fillers,
        sampling=_sampling(values.get("sampling", "balanced" if "count" in values else "full")),
        count=_whole(values.get("count"), "count"),
        images=_whole(values.get("images", 1), "images") or 1,
        excluded=_excluded(values.get("exclude") or [], things, nuisances),
    )
    if len(grid) == 0:
        raise BadSpec(f"grid: empty, all of its pairs are excluded; shorten exclude ({len(grid.excluded)} entries)")
    return grid


def _nuisance(kind: str, entry: Any, fillers: Mapping[str, tuple[str, ...]]) -> Nuisance:
    what = f"grid: nuisance {kind!r}"
    if not isinstance(entry, Mapping) or set(entry) - {"words", "templates"} or set(entry) != {"words", "templates"}:
        raise BadSpec(
            f"{what}: needs words and templates, got {', '.join(map(str, entry)) if isinstance(entry, Mapping) else entry!r}"
        )
    templates = [entry["templates"]] if isinstance(entry["templates"], str) else entry["templates"]
    if not isinstance(templates, list) or not templates or not all(isinstance(each, str) for each in templates):
        raise BadSpec(f"{what}: templates are a list of sentences, got {templates!r:.60}")
    for template in templates:
        check_template(template, fillers=list(fillers), what=what)
    if "/" in kind:
        raise BadSpec(f"{what}: a kind's name has no slash in it")
    return Nuisance(kind, read_words(entry["words"], what=what), tuple(templates))


def _excluded(entries: Any, things: tuple[Thing, ...], nuisances: list[Nuisance]) -> frozenset[tuple[str, str, str]]:
    known = {thing.name for thing in things} | {"*"}
    words = {each.kind: set(each.words) | {"*"} for each in nuisances}
    found = set()
    for entry in entries if isinstance(entries, list) else [entries]:
        kinds = [key for key in entry if key != "object"] if isinstance(entry, Mapping) else []
        if len(kinds) != 1 or kinds[0] not in words:
            raise BadSpec(f"grid: exclude lists pairs such as {{object: wok, {nuisances[0].kind}: …}}, got {entry!r:.60}")
        thing, word = str(entry.get("object", "*")), str(entry[kinds[0]])
        if thing not in known or word not in words[kinds[0]]:
            raise BadSpec(f"grid: exclude names {thing!r} and {kinds[0]} {word!r}, which are not both in the grid")
        found.add((thing, kinds[0], word))
    return frozenset(found)


def _pairs(values: Mapping[str, Any], key: str) -> list[tuple[Any, Any]]:
    entry = values.get(key) or {}
    if not isinstance(entry, Mapping):
        raise BadSpec(f"grid: {key} is a mapping, got {type(entry).__name__}")
    return list(entry.items())


def _sampling(value: Any) -> Sampling:
    if value not in get_args(Sampling):
        raise BadSpec(f"grid: sampling is one of {', '.join(get_args(Sampling))}, got {value!r}")
    return value  # type: ignore[no-any-return]


def _whole(value: Any, key: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadSpec(f"grid: {key} is a whole number from 1, got {value!r}")
    return value
