"""Prompt grids: objects × nuisances, written as a small YAML file and planned without painting anything.

objects: imagenet-d-objects            a list by name, a file, or a mapping of names to ids
nuisances:
  background:                          a kind of nuisance: any name will do
    words: scenes                      a list by name, a file, a list, or a mapping of names to phrases
    templates: ["a photo of {a} {object} {nuisance}"]
fillers: {colour: [red, blue]}         further slots of templates, drawn for each prompt
sampling: balanced                     or full, or random
count: 10000                           prompts at most
images: 1                              images of each prompt, with seeds of their own
exclude: [{object: wok, background: under water}]
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any, Literal, TypeVar, get_args

from counterfoil.core.errors import BadData, BadSpec
from counterfoil.core.naming import stable_hash
from counterfoil.core.tables import parse_yaml, read_table, read_text
from counterfoil.parts import labels
from counterfoil.parts.language.english import article

Sampling = Literal["full", "random", "balanced"]
WORDS = Path(__file__).parent / "words"
ANY = "*"
_KEYS = ("objects", "nuisances", "fillers", "sampling", "count", "images", "exclude")


@dataclass(frozen=True)
class GridObject:
    """One object. A classifier that names any of its ids is right."""

    name: str
    ids: tuple[str, ...]  # names or WordNet ids in a classifier's label space; its own name if it has no others
    phrase: str  # the words of a prompt
    lead: str = ""  # what stands before the phrase instead of "a" or "an", as in "a pair of"


@dataclass(frozen=True)
class Nuisance:
    """One kind of nuisance: its words, each with a phrase, and the sentences that use them."""

    kind: str
    words: Mapping[str, str]
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of the grid."""

    kind: int  # number of the nuisance
    object: int
    word: str
    number: int  # of several images for one object and nuisance, from 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """One image to paint."""

    prompt_id: str  # unique within the grid, and the same whatever else is sampled
    label: int  # of the object, in the grid's classes
    object: str
    kind: str  # of nuisance
    nuisance: str
    number: int
    text: str


@dataclass(frozen=True)
class Grid:
    """Objects × nuisances. The same grid and seed give the same prompts, whatever else was sampled."""

    objects: tuple[GridObject, ...]
    nuisances: tuple[Nuisance, ...]
    fillers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: Sampling = "balanced"
    count: int | None = None
    images: int = 1
    excluded: frozenset[tuple[str, str, str]] = frozenset()  # object, kind, nuisance; "*" for any

    @property
    def classes(self) -> list[str]:
        """The names of the objects."""
        return [each.name for each in self.objects]

    @property
    def size(self) -> int:
        """Number of images of the whole grid, without excluded pairs."""
        return sum(self._allowed_pairs(nuisance) for nuisance in self.nuisances) * self.images

    def __len__(self) -> int:
        return self.size if self.count is None or self.sampling == "full" else min(self.count, self.size)

    def allows(self, name: str, kind: str, word: str) -> bool:
        """Tell pairs that may be painted from excluded ones."""
        if not self.excluded:
            return True
        return not any((one, kind, other) in self.excluded for one in (name, ANY) for other in (word, ANY))

    def prompts(self, seed: int = 0) -> Iterator[Prompt]:
        """The prompts to paint, one at a time."""
        for cell in self.cells(seed):
            nuisance, each = self.nuisances[cell.kind], self.objects[cell.object]
            prompt_id = f"{nuisance.kind}/{each.name}/{cell.word}/{cell.number}"
            template = nuisance.templates[stable_hash(seed, prompt_id, "template") % len(nuisance.templates)]
            values = {name: words[stable_hash(seed, prompt_id, name) % len(words)] for name, words in self.fillers.items()}
            values |= {"object": each.phrase, "nuisance": nuisance.words[cell.word]}
            text = fill(template, values, lead=each.lead)
            yield Prompt(prompt_id, cell.object, each.name, nuisance.kind, cell.word, cell.number, text)

    def cells(self, seed: int) -> Iterator[Cell]:
        """The cells to paint, in the order in which they are painted; the whole grid is never listed.

        `balanced` goes round the objects and, within each kind of nuisance, round the words, so that after any number of
        prompts every object was named as often as any other, to within one, and nearly so every word; kinds take turns.
        `random` draws without replacement.
        """
        if self.sampling == "full":
            return self._full()
        return self._random(seed) if self.sampling == "random" else islice(self._balance(seed), len(self))

    def _allowed_pairs(self, nuisance: Nuisance) -> int:
        if not any(kind == nuisance.kind for _, kind, _ in self.excluded):
            return len(self.objects) * len(nuisance.words)
        return sum(self.allows(each.name, nuisance.kind, word) for each in self.objects for word in nuisance.words)

    def _full(self) -> Iterator[Cell]:
        for kind, nuisance in enumerate(self.nuisances):
            for at, each in enumerate(self.objects):
                for word in nuisance.words:
                    if self.allows(each.name, nuisance.kind, word):
                        yield from (Cell(kind, at, word, number) for number in range(self.images))

    def _random(self, seed: int) -> Iterator[Cell]:
        """Numbers drawn out of the whole grid and turned into cells; excluded ones are passed over."""
        words = [list(nuisance.words) for nuisance in self.nuisances]
        sizes = [len(self.objects) * len(each) * self.images for each in words]
        left = len(self)
        for at in _shuffle(sum(sizes), random.Random(f"grid {seed}")):
            kind = 0
            while at >= sizes[kind]:
                at -= sizes[kind]
                kind += 1
            pair, number = divmod(at, self.images)
            place, word = divmod(pair, len(words[kind]))
            if self.allows(self.objects[place].name, self.nuisances[kind].kind, words[kind][word]):
                yield Cell(kind, place, words[kind][word], number)
                left -= 1
                if left == 0:
                    return

    def _balance(self, seed: int) -> Iterator[Cell]:
        """Kinds take turns; a kind that is used up leaves its turns to the others."""
        turns = [self._rounds(kind, seed) for kind in range(len(self.nuisances))]
        while turns:
            found = [(turn, next(turn, None)) for turn in turns]
            yield from (cell for _, cell in found if cell is not None)
            turns = [turn for turn, cell in found if cell is not None]

    def _rounds(self, kind: int, seed: int) -> Iterator[Cell]:
        """All cells of one kind: in each round every object once, with the words that come next.

        Word number i + r·objects + ⌊r·gcd / words⌋ for object i in round r: each pair once in as many rounds as there are words.
        """
        nuisance = self.nuisances[kind]
        objects = _order(range(len(self.objects)), f"things {seed} {kind}")
        words = _order(list(nuisance.words), f"words {seed} {kind}")
        common = math.gcd(len(objects), len(words))
        for number in range(self.images):
            for turn in range(len(words)):
                shift = turn * len(objects) + turn * common // len(words)
                for at, place in enumerate(objects):
                    word = words[(at + shift) % len(words)]
                    if self.allows(self.objects[place].name, nuisance.kind, word):
                        yield Cell(kind, place, word, number)


Item = TypeVar("Item")


def _order(items: Sequence[Item], seed: str) -> list[Item]:
    order = list(items)
    random.Random(seed).shuffle(order)
    return order


def _shuffle(total: int, drawn: random.Random) -> Iterator[int]:
    """The numbers below `total` in random order, holding only those that were swapped."""
    moved: dict[int, int] = {}
    for at in range(total):
        other = drawn.randrange(at, total)
        yield moved.get(other, other)
        moved[other] = moved.pop(at, at)


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
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None:
        raise BadSpec(f"grid: unknown key {unknown!r}; keys are {', '.join(_KEYS)}")
    fillers = {
        str(name): tuple(read_words(words, what=f"grid: filler {name!r}").values()) for name, words in _pairs(values, "fillers")
    }
    nuisances = [_nuisance(str(kind), entry, fillers) for kind, entry in _pairs(values, "nuisances")]
    if not nuisances:
        raise BadSpec("grid: no nuisances; name at least one kind, with words and templates")
    sampling = values.get("sampling", "balanced" if "count" in values else "full")
    if sampling not in get_args(Sampling):
        raise BadSpec(f"grid: sampling is one of {', '.join(get_args(Sampling))}, got {sampling!r}")
    objects = tuple(read_objects(values.get("objects")))
    grid = Grid(
        objects=objects,
        nuisances=tuple(nuisances),
        fillers=fillers,
        sampling=sampling,
        count=_whole(values.get("count"), "count"),
        images=_whole(values.get("images", 1), "images") or 1,
        excluded=_exclusions(values.get("exclude") or [], objects, nuisances),
    )
    if len(grid) == 0:
        raise BadSpec(f"grid: empty, all of its pairs are excluded; shorten exclude ({len(grid.excluded)} entries)")
    return grid


def _nuisance(kind: str, entry: Any, fillers: Collection[str]) -> Nuisance:
    what = f"grid: nuisance {kind!r}"
    if not isinstance(entry, Mapping) or set(entry) != {"words", "templates"}:
        given = ", ".join(map(str, entry)) if isinstance(entry, Mapping) else repr(entry)
        raise BadSpec(f"{what}: needs words and templates, got {given}")
    templates = [entry["templates"]] if isinstance(entry["templates"], str) else entry["templates"]
    if not isinstance(templates, list) or not templates or not all(isinstance(each, str) for each in templates):
        raise BadSpec(f"{what}: templates are a list of sentences, got {templates!r:.60}")
    for template in templates:
        _check_template(template, fillers, what)
    if "/" in kind:
        raise BadSpec(f"{what}: a kind's name has no slash in it")
    return Nuisance(kind, read_words(entry["words"], what=what), tuple(templates))


def _check_template(template: str, fillers: Collection[str], what: str) -> None:
    """Refuse a template without object or nuisance, or with a slot that nothing fills."""
    try:
        slots = [slot for _, slot, _, _ in Formatter().parse(template) if slot is not None]
    except ValueError as error:
        raise BadSpec(f"{what}: the template {template!r} cannot be read ({error}); write slots as {{object}}") from None
    for slot in ("object", "nuisance"):
        if slot not in slots:
            raise BadSpec(f"{what}: the template {template!r} has no slot {{{slot}}}; write it where the {slot} belongs")
    unknown = next((slot for slot in slots if slot not in ("object", "nuisance", "a", *fillers)), None)
    if unknown is not None:
        known = f"; fillers are {', '.join(fillers)}" if fillers else ""
        raise BadSpec(f"{what}: the template {template!r} has the slot {{{unknown}}}, which nothing fills{known}")


def _exclusions(entries: Any, objects: Sequence[GridObject], nuisances: Sequence[Nuisance]) -> frozenset[tuple[str, str, str]]:
    known = {each.name for each in objects} | {ANY}
    words = {each.kind: set(each.words) | {ANY} for each in nuisances}
    found = set()
    for entry in entries if isinstance(entries, list) else [entries]:
        kinds = [key for key in entry if key != "object"] if isinstance(entry, Mapping) else []
        if len(kinds) != 1 or kinds[0] not in words:
            raise BadSpec(f"grid: exclude lists pairs such as {{object: wok, {nuisances[0].kind}: …}}, got {entry!r:.60}")
        name, word = str(entry.get("object", ANY)), str(entry[kinds[0]])
        if name not in known or word not in words[kinds[0]]:
            raise BadSpec(f"grid: exclude names {name!r} and {kinds[0]} {word!r}, which are not both in the grid")
        found.add((name, kinds[0], word))
    return frozenset(found)


def _pairs(values: Mapping[str, Any], key: str) -> list[tuple[Any, Any]]:
    entry = values.get(key) or {}
    if not isinstance(entry, Mapping):
        raise BadSpec(f"grid: {key} is a mapping, got {type(entry).__name__}")
    return list(entry.items())


def _whole(value: Any, key: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadSpec(f"grid: {key} is a whole number from 1, got {value!r}")
    return value  # type: ignore[no-any-return]


def read_objects(given: Any, *, what: str = "grid: objects") -> list[GridObject]:
    """The objects of a grid: a list of names, a mapping from name to ids, or a file or list of the package with one."""
    if isinstance(given, str):
        content = read_yaml(given, what=what)
        return read_objects(content.get("objects", content) if isinstance(content, Mapping) else content, what=what)
    if isinstance(given, list):
        given = {str(name): None for name in given}
    if not isinstance(given, Mapping) or not given:
        raise BadSpec(f"{what}: none given; list names, or map each name to its ids")
    objects = [_object(str(name), value, what) for name, value in given.items()]
    owners: dict[str, str] = {}
    for each in objects:
        for one in each.ids:
            other = owners.setdefault(labels.key(one), each.name)
            if other != each.name:
                raise BadSpec(f"{what}: {one!r} belongs to {other!r} and to {each.name!r}; give each id to one object")
    if len(objects) < 2:
        raise BadSpec(f"{what}: only {objects[0].name!r}; a test of a classifier needs two or more")
    return objects


def _object(name: str, value: Any, what: str) -> GridObject:
    keys = ("ids", "lead", "phrase")
    if not isinstance(value, Mapping):
        value = {} if value is None else {"ids": value}
    unknown = [key for key in value if key not in keys]
    if unknown:
        raise BadSpec(f"{what}: {name!r} is described by ids, or by {', '.join(keys)}; unknown key {unknown[0]!r}")
    ids = value.get("ids", [name])
    ids = [ids] if isinstance(ids, str | int) else ids
    if not isinstance(ids, list) or not ids:
        raise BadSpec(f"{what}: {name!r} has no ids; list the classes it stands for, or leave ids out to match it by name")
    return GridObject(name, tuple(map(str, ids)), str(value.get("phrase", "")) or name, str(value.get("lead", "")))


def read_words(given: Any, *, what: str) -> dict[str, str]:
    """The words of a nuisance, each with its phrase in a prompt."""
    content = _words_of(given, what=what) if isinstance(given, str) else given
    if isinstance(content, Mapping):
        found = {str(name): str(name if phrase is None else phrase) for name, phrase in content.items()}
    elif isinstance(content, list) and all(isinstance(word, str | int | float) for word in content):
        found = {str(word): str(word) for word in content}
        if len(found) < len(content):
            twice = next(str(word) for word in content if content.count(word) > 1)
            raise BadSpec(f"{what}: {twice!r} is listed twice; name each word once")
    else:
        raise BadSpec(f"{what}: words are a list, a mapping from name to phrase, or a file; got {content!r:.60}")
    if not found:
        raise BadSpec(f"{what}: no words; list at least one")
    seen: dict[str, str] = {}
    for name in found:
        other = seen.setdefault(labels.key(name), name)
        if other != name:
            raise BadSpec(f"{what}: {other!r} and {name!r} are the same name; keep one of them")
    return found


def _words_of(given: str, *, what: str) -> Any:
    """The words in a named list or a file: YAML, CSV with a column `name`, or a text with one word per line."""
    path = _find(given)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        content = read_yaml(given, what=what)
        return content["words"] if isinstance(content, Mapping) and isinstance(content.get("words"), list | Mapping) else content
    try:
        if path.suffix.lower() == ".csv":  # a scene's code name in words: `living_room-s` is a living room
            names = [row["name"] for _, row in read_table(path, ["name"], what="words") if row["name"]]
            return [name.removesuffix("-s").replace("_", " ").replace("-", " ") for name in names]
        return [line.strip() for line in read_text(path).splitlines() if line.strip() and not line.startswith("#")]
    except BadData as error:
        raise BadSpec(f"{what}: {error}; {_hint(given)}") from None


def read_yaml(given: str, *, what: str) -> Any:
    """The content of a YAML file, or of a list of the package."""
    path = _find(given)
    try:
        return parse_yaml(read_text(path), what=str(path))
    except BadData as error:
        raise BadSpec(f"{what}: {error}; {_hint(given)}") from None


def _find(given: str) -> Path:
    named = WORDS / f"{given}.yaml"
    return named if named.is_file() else Path(given).expanduser()


def _hint(given: str) -> str:
    names = sorted(path.stem for path in WORDS.glob("*.yaml"))
    near = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"lists of the package are {', '.join(names)}"
