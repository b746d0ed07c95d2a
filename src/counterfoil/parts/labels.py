"""Match the class names of data, models and oracles; read them, number them and put them into groups.

Names are compared without regard to case, accents, spaces, hyphens, underscores and other punctuation. A class may go by
several names: "tench, Tinca tinca" is also "tench" and "Tinca tinca", and aliases add more, such as a WordNet id.

Groups make many classes one. They are a mapping from the new class to its members, a JSON or YAML file with one, or
`imagenet-9`, the nine classes of the paper. A member is a name, an alias, a number counted from 0, or a range of numbers
"151-268".
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadData, BadPart, LabelMismatch
from counterfoil.core.tables import parse_yaml, read_json, read_table, read_text
from counterfoil.parts import imagenet

Aliases = Sequence[Sequence[str]]
"""Further names of each class, in the order of the classes."""

Member = str | int
GroupSpec = str | Mapping[str, Any]

CLASSES_FILE = "classes.txt"
"""The file next to images that says what numbers mean, one name per line."""

MAX_CLASSES = 1_000_000
"""Class numbers are below this; a larger one is an id, and a list of names up to it would fill the memory."""

_NUMBER = re.compile(r"[0-9]+")
_RANGE = re.compile(r"\s*([0-9]+)\s*-\s*([0-9]+)\s*")
_ENOUGH = 950  # of the thousand names have to be ImageNet's at their place
_KNOWN_GROUPS = {"imagenet-9": imagenet.nine_classes}


def match(
    wanted: Sequence[str],
    offered: Sequence[str],
    *,
    what: str,
    aliases: Aliases | None = None,
    wanted_aliases: Aliases | None = None,
) -> list[int]:
    """For each wanted class, the index of the offered class of that name.

    Tried in this order, the first that finds anything decides: the name to the letter; the name as compared; an alias of
    the offered class; an alias of the wanted class; a shared part of names with commas in them. `what` says in errors who
    offers the classes.
    """
    exact = {name: [position] for position, name in enumerate(offered)}
    full, other = _index([name] for name in offered), _index(aliases or ())
    parts = _index([name, *split(name)] for name in offered)
    found, missing = [], []
    for position, name in enumerate(wanted):
        nicknames = wanted_aliases[position] if wanted_aliases else ()
        indices = (
            (exact.get(name) if offered.count(name) == 1 else None)
            or full.get(key(name))
            or other.get(key(name))
            or _positions(nicknames, full, other)
            or _positions(split(name), parts, other)
        )
        if not indices:
            missing.append(name)
            continue
        if len(indices) > 1:
            either = " or ".join(f"{offered[index]!r} (number {index})" for index in indices[:3])
            more = ", and more" if len(indices) > 3 else ""
            raise LabelMismatch(f"{what}: class {name!r} may be {either}{more}; rename it to the one that is meant")
        found.extend(indices)
    if missing:
        raise LabelMismatch(_missing(missing, wanted, offered, what))
    first: dict[int, str] = {}
    for index, name in zip(found, wanted, strict=True):
        if index in first:
            both = f"{first[index]!r} and {name!r}"
            raise LabelMismatch(f"{what}: classes {both} are both its class {offered[index]!r}; merge or rename them")
        first[index] = name
    return found


def key(name: str) -> str:
    """A name as it is compared: letters and digits only, without case or accents."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(letter for letter in plain if letter.isalnum()) or name.strip()


def split(name: str) -> list[str]:
    """The names a class goes by, from a list with commas; the first is the usual one."""
    return [part.strip() for part in name.split(",") if part.strip()] or [name]


def read_names(given: str | Path | Sequence[str]) -> list[str]:
    """Class names: a list, or a file with a JSON list or one name per line."""
    if not isinstance(given, str | Path):
        return [str(name) for name in given]
    path = Path(given).expanduser()
    try:
        text = None if path.suffix.lower() == ".json" else read_text(path)
        names = read_json(path) if text is None else [line.strip() for line in text.splitlines()]
    except BadData as error:
        raise LabelMismatch(f"{error}; give class names as a text file, one name per line") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LabelMismatch(f"{path}: class names must be a list of strings; a JSON list, or a text with one name per line")
    while names and not names[-1]:
        names.pop()
    return names


def read_mapping(path: Path, keys: Sequence[str]) -> dict[str, str]:
    """Names for `keys` from a file, or those of them it has.

    JSON: a mapping. CSV or TSV: the first column, and the column headed `name`. Text: `key name` on each line.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".json":
            found = read_json(path)
        elif suffix in (".csv", ".tsv"):
            rows = [row for _, row in read_table(path, ["name"], what="class names")]
            found = {next((value for head, value in row.items() if head != "name"), ""): row["name"] for row in rows}
        else:
            found = dict(line.split(maxsplit=1) for line in read_text(path).splitlines() if len(line.split(maxsplit=1)) > 1)
    except BadData as error:
        raise LabelMismatch(f"{error}; {_MAPPINGS}") from None
    if not isinstance(found, Mapping):
        raise LabelMismatch(f"{path}: names cannot be read (a JSON {type(found).__name__}); {_MAPPINGS}")
    wanted = set(keys)
    return {str(key): str(value).strip() for key, value in found.items() if str(key) in wanted}


_MAPPINGS = "give a JSON mapping, lines 'class name', or a table with the classes and a column 'name'"


def recognise(names: Sequence[str]) -> tuple[list[str], Aliases | None]:
    """Names all unlike each other, and aliases where they are ImageNet's thousand, with or without a background class."""
    extra = len(names) - 1000
    if extra in (0, 1):
        known = [{key(name) for name in (entry.name, *entry.aliases)} for entry in imagenet.classes()]
        held = [key(name) in own for name, own in zip(names[extra:], known, strict=True)]
        if sum(held) >= _ENOUGH:
            own_names, own_aliases = imagenet.names_and_aliases()
            spelt = zip(own_aliases, names[extra:], held, strict=True)
            aliases = [aliases if is_known else (*aliases, name) for aliases, name, is_known in spelt]
            return [*names[:extra], *own_names], [()] * extra + aliases
    times = Counter(names)
    return [f"{name} (number {at})" if times[name] > 1 else name for at, name in enumerate(names)], None


def named_classes(classes: str | Path | Sequence[str] | None) -> tuple[list[str], Aliases | None] | None:
    """Names and aliases from a list, a file with one name per line, or the word imagenet."""
    if classes == "imagenet":
        return imagenet.names_and_aliases()
    return None if classes is None else recognise(read_names(classes))


def names_for_outputs(classes: str | Path | Sequence[str] | None, outputs: int, *, what: str) -> tuple[list[str], Aliases | None]:
    """One name for each output of a model: those given, or ImageNet's for a thousand outputs."""
    found = named_classes(classes) or (named_classes("imagenet") if outputs == 1000 else None)
    if found is None:
        hint = "; outputs before the first class are left out by skip: 1" if outputs == 1001 else ""
        raise BadPart(f"{what}: {outputs} outputs without names; give classes: a list, or a file with one name per line{hint}")
    check_outputs(found[0], outputs, what)
    return found


def check_outputs(classes: Sequence[str], outputs: int, what: str) -> None:
    """Raise BadPart unless there is one name for each of a model's outputs."""
    if len(classes) != outputs:
        raise BadPart(f"{what}: {len(classes)} class names for {outputs} outputs; give one name per output, in their order")


@dataclass(frozen=True)
class Labels:
    """Class names, their other names, and the class each written label means."""

    classes: list[str]
    aliases: Aliases | None
    numbers: dict[str, int]


def resolve_labels(
    written: Iterable[str], classes: str | Sequence[str] | None, *, what: str, folder: Path | None = None
) -> Labels:
    """The classes behind the labels as written.

    With `classes` (a list, or a file with one per line) labels are names or WordNet ids among them, or numbers counted from
    0. Without, numbers count the names in a file classes.txt in `folder`, if there is one, or name themselves; words are the
    classes, sorted; WordNet ids are put into words.
    """
    distinct = sorted(set(written))
    if not distinct:
        raise BadData(f"{what}: no images")
    count = all(_NUMBER.fullmatch(label) for label in distinct)
    if classes is None and count and folder is not None and (folder / CLASSES_FILE).is_file():
        classes = str(folder / CLASSES_FILE)
    aliases: Aliases | None
    if classes is not None:
        listed = read_names(classes)
        names, aliases = recognise(listed)
        if count and not set(distinct) <= set(listed):
            numbers = {label: class_number(label, what) for label in distinct}
        else:
            matched = match(distinct, names, what=f"{what}: the classes given", aliases=aliases)
            numbers = dict(zip(distinct, matched, strict=True))
    elif count:
        numbers = {label: class_number(label, what) for label in distinct}
        names, aliases = [str(number) for number in range(max(numbers.values()) + 1)], None
    else:
        names, aliases = imagenet.in_words(distinct), [(label,) for label in distinct]
        numbers = {label: number for number, label in enumerate(distinct)}
    check_classes(names, what)
    highest = max(numbers.values())
    if highest >= len(names):
        raise BadData(f"{what}: labels go up to {highest}, but there are {len(names)} classes, counted from 0")
    return Labels(names, aliases, numbers)


def class_number(written: str, what: str) -> int:
    """A class number as it is written, if it can be one."""
    number = int(written) if len(written) <= 18 else MAX_CLASSES
    if number >= MAX_CLASSES:
        shown = written if len(written) <= 18 else f"{written[:18]}…"
        raise BadData(f"{what}: {shown} is no class number, these are below {MAX_CLASSES:,}; write names, or count from 0")
    return number


def check_classes(names: Sequence[str], what: str) -> None:
    """Raise BadData unless there are two or more classes, each with a name of its own."""
    if len(names) < 2:
        raise BadData(f"{what}: only one class; a test of a classifier needs two or more")
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise BadData(f"{what}: {times} classes are called {twice!r}; give each its own name")


def read_groups(groups: GroupSpec) -> dict[str, list[Member]]:
    """The members of each group, ranges written out."""
    if isinstance(groups, str):
        content = _KNOWN_GROUPS[groups]() if groups in _KNOWN_GROUPS else _read_groups_file(Path(groups).expanduser())
        return read_groups(content)
    if not groups:
        raise LabelMismatch("groups: none given; write a mapping from each class to its members")
    return {str(name): _members(str(name), members) for name, members in groups.items()}


def resolve_groups(
    groups: Mapping[str, Sequence[Member]],
    offered: Sequence[str],
    *,
    what: str,
    aliases: Aliases | None = None,
    partial: bool = False,
) -> dict[str, list[int]]:
    """The offered classes in each group, by number. With `partial`, members and groups that are not offered are left out."""
    numbers = _by_name([member for members in groups.values() for member in members], offered, aliases, what, partial)
    found: dict[str, list[int]] = {}
    home: dict[int, str] = {}
    for group, members in groups.items():
        held = [numbers[member] for member in members if member in numbers]
        for number in held:
            if number in home:
                both = f"is named twice in {group!r}" if home[number] == group else f"is in {home[number]!r} and {group!r}"
                raise LabelMismatch(f"{what}: its class {offered[number]!r} {both}; name each class once")
            home[number] = group
        if held:
            found[group] = held
    if len(found) < 2:
        raise LabelMismatch(f"{what}: {len(found)} of the {len(groups)} groups have a member among its classes; two are needed")
    return found


_Index = Mapping[str, list[int]]


def _index(names: Iterable[Iterable[str]]) -> _Index:
    """The classes that go by each name, as names are compared."""
    index: dict[str, list[int]] = defaultdict(list)
    for position, own in enumerate(names):
        for name in {key(name) for name in own}:
            index[name].append(position)
    return index


def _positions(names: Iterable[str], *indices: _Index) -> list[int]:
    return sorted({position for name in names for index in indices for position in index.get(key(name), ())})


def _missing(missing: Sequence[str], wanted: Sequence[str], offered: Sequence[str], what: str) -> str:
    nearest = {key(part): part for name in offered for part in (name, *split(name))}
    named = []
    for name in missing[:3]:
        close = difflib.get_close_matches(key(name), nearest, n=1)
        named.append(f"{name!r} (nearest: {nearest[close[0]]!r})" if close else repr(name))
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    some = ", ".join(repr(name) for name in offered[:3])
    return (
        f"{what}: {len(missing)} of {len(wanted)} classes are not among its {len(offered)} ({some}, …): "
        f"{', '.join(named)}{more}; rename the data's classes to fit, or choose a model that knows them"
    )


def _by_name(
    members: Sequence[Member], offered: Sequence[str], aliases: Aliases | None, what: str, partial: bool
) -> dict[Member, int]:
    """The number of each member that is offered."""
    for member in members:
        if isinstance(member, int) and not 0 <= member < len(offered):
            raise LabelMismatch(f"{what}: has classes 0 to {len(offered) - 1}, a group names number {member}")
    wanted = list(dict.fromkeys(member for member in members if isinstance(member, str)))
    if partial:
        held = {key(part) for name in offered for part in (name, *split(name))}
        held |= {key(name) for names in aliases or () for name in names}
        wanted = [name for name in wanted if key(name) in held]
    matched = zip(wanted, match(wanted, offered, what=what, aliases=aliases), strict=True)
    return {**{member: member for member in members if isinstance(member, int)}, **dict(matched)}


def _members(group: str, members: object) -> list[Member]:
    listed = members if isinstance(members, list | tuple) else [members]
    found: list[Member] = []
    for member in listed:
        span = _RANGE.fullmatch(member) if isinstance(member, str) else None
        if span:
            first, last = (class_number(number, f"groups: {group!r}") for number in span.groups())
            if last < first:
                raise LabelMismatch(f"groups: {group!r} has the range {member!r}, which ends before it begins")
            found.extend(range(first, last + 1))
        elif isinstance(member, str | int) and not isinstance(member, bool):
            found.append(member)
        else:
            raise LabelMismatch(f"groups: a member of {group!r} is a name, a number or a range, got {member!r}")
    if not found:
        raise LabelMismatch(f"groups: {group!r} has no members")
    return found


def _read_groups_file(path: Path) -> Mapping[str, Any]:
    try:
        content = parse_yaml(read_text(path), what=f"groups: {path}")  # JSON is YAML
    except BadData as error:
        known = ", ".join(_KNOWN_GROUPS)
        raise LabelMismatch(f"{error}; give a JSON or YAML file, or one of {known}") from None
    if not isinstance(content, Mapping):
        raise LabelMismatch(f"groups: {path} holds a {type(content).__name__}; write a mapping from each class to its members")
    return content
