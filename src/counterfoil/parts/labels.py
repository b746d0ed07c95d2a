"""Fits class names together: those of the data with those of a model or an oracle.

Names are compared without regard to case, accents, spaces, hyphens, underscores and other punctuation. A class may go by
several names: "tench, Tinca tinca" is also "tench" and "Tinca tinca", and aliases add more, such as a WordNet id.
"""

from __future__ import annotations

import csv
import difflib
import json
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from counterfoil.core.errors import LabelMismatch, one_line

Aliases = Sequence[Sequence[str]]
"""Further names of each class, in the order of the classes."""

CLASSES_FILE = "classes.txt"
"""The file beside pictures that says what numbers mean, one name a line."""


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
    full, other, parts = _indexed(offered), _indexed_aliases(aliases), _indexed_parts(offered)
    found, missing = [], []
    for position, name in enumerate(wanted):
        nicknames = wanted_aliases[position] if wanted_aliases else ()
        indices = (
            (exact.get(name) if offered.count(name) == 1 else None)
            or full.get(key(name))
            or other.get(key(name))
            or _merged(nicknames, full, other)
            or _merged(split(name), parts, other)
        )
        if not indices:
            missing.append(name)
            continue
        if len(indices) > 1:
            raise LabelMismatch(f"{what}: class {name!r} may be {_either(indices, offered)}; rename it to the one that is meant")
        found.extend(indices)
    if missing:
        raise LabelMismatch(_missing(missing, wanted, offered, what))
    _refuse_shared(found, wanted, offered, what)
    return found


def key(name: str) -> str:
    """A name as it is compared: letters and digits only, without case or accents."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(letter for letter in plain if letter.isalnum()) or name.strip()


def split(name: str) -> list[str]:
    """The names a class goes by, from a list with commas; the first is the usual one."""
    return [part.strip() for part in name.split(",") if part.strip()] or [name]


def given_names(classes: str | Sequence[str]) -> list[str]:
    """Class names as an option gives them: a list, or a file with one a line."""
    return read_names(Path(classes).expanduser()) if isinstance(classes, str) else [str(name) for name in classes]


def read_names(path: Path) -> list[str]:
    """Class names from a file: a JSON list, or a text with one name a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        names = json.loads(text) if path.suffix.lower() == ".json" else [line.strip() for line in text.splitlines()]
    except OSError as error:
        raise LabelMismatch(f"{path}: class names cannot be read ({error.strerror}); give a text file, one name a line") from None
    except ValueError as error:
        raise LabelMismatch(f"{path}: class names cannot be read ({error}); give a text file, one name a line") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LabelMismatch(f"{path}: class names must be a list of strings; a JSON list, or a text with one name a line")
    while names and not names[-1]:
        names.pop()
    return names


def read_mapping(path: Path, keys: Sequence[str]) -> dict[str, str]:
    """Names for `keys` from a file, or those of them it has.

    JSON: a mapping, or a list in the order of `keys`. CSV: the column that holds the keys, and the column headed `name`
    or else the last. Text: `key name` on each line, or one name a line in the order of `keys`.
    """
    try:
        if path.suffix.lower() == ".json":
            values = json.loads(path.read_text(encoding="utf-8-sig"))
            if isinstance(values, Mapping):
                return {str(key): str(value) for key, value in values.items() if str(key) in keys}
            return _in_order(read_names(path), keys, path)
        if path.suffix.lower() in (".csv", ".tsv"):
            return _from_table(path, keys)
        lines = [line for line in read_names(path) if line]
        pairs = {head: tail.strip() for head, _, tail in (line.partition(" ") for line in lines) if tail.strip()}
        if all(key in pairs for key in keys):
            return {key: pairs[key] for key in keys}
        return _in_order(lines, keys, path)
    except OSError as error:
        raise LabelMismatch(f"{path}: names cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise LabelMismatch(f"{path}: names cannot be read ({one_line(error)})") from None


_Index = Mapping[str, list[int]]


def _indexed(names: Iterable[str]) -> _Index:
    index: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        index[key(name)].append(position)
    return index


def _indexed_aliases(aliases: Aliases | None) -> _Index:
    index: dict[str, list[int]] = defaultdict(list)
    for position, names in enumerate(aliases or ()):
        for name in {key(name) for name in names}:
            index[name].append(position)
    return index


def _indexed_parts(names: Sequence[str]) -> _Index:
    return _indexed_aliases([[name, *split(name)] for name in names])


def _merged(names: Iterable[str], *indices: _Index) -> list[int]:
    return sorted({position for name in names for index in indices for position in index.get(key(name), ())})


def _either(indices: Sequence[int], offered: Sequence[str]) -> str:
    shown = [f"{offered[index]!r} (number {index})" for index in indices[:3]]
    return " or ".join(shown) + (", and more" if len(indices) > 3 else "")


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


def _refuse_shared(found: Sequence[int], wanted: Sequence[str], offered: Sequence[str], what: str) -> None:
    first: dict[int, str] = {}
    for index, name in zip(found, wanted, strict=True):
        if index in first:
            both = f"{first[index]!r} and {name!r}"
            raise LabelMismatch(f"{what}: classes {both} are both its class {offered[index]!r}; merge or rename them")
        first[index] = name


def _in_order(names: Sequence[str], keys: Sequence[str], path: Path) -> dict[str, str]:
    if len(names) != len(keys):
        raise LabelMismatch(f"{path}: {len(names)} names for {len(keys)} classes; give one name a class, in their sorted order")
    return dict(zip(keys, names, strict=True))


def _from_table(path: Path, keys: Sequence[str]) -> dict[str, str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",") if row]
    columns = range(max((len(row) for row in rows), default=0))
    held = {column: sum(len(row) > column and row[column].strip() in keys for row in rows) for column in columns}
    home = max(held, key=lambda column: held[column], default=0)
    if len(columns) < 2 or not held[home]:
        some = ", ".join(map(repr, keys[:3]))
        raise LabelMismatch(f"{path}: no column holds the classes {some}, …; give one with them and one with names")
    header = [cell.strip().casefold() for cell in rows[0]]
    target = header.index("name") if "name" in header else max(column for column in columns if column != home)
    return {row[home].strip(): row[target].strip() for row in rows if len(row) > max(home, target) and row[home].strip() in keys}
