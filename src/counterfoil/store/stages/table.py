"""A stage's table: a file of JSON lines that people may correct, and the parts of a stage that is under way."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadRun
from counterfoil.core.tables import BadJson, parse_json
from counterfoil.store.files import TEMPORARY, remove, sync, write_whole, writing
from counterfoil.store.stages.items import Item, Row, row_of

FOLDER = "stages"
"""Where in a run directory the tables are."""

Place = tuple[Path, int]  # a file and where in it a line begins
Follows = Callable[[Row], Mapping[str, Any]]


def open_table(root: Path, name: str) -> Table:
    """The table of a stage, to be read; empty if the stage has not begun."""
    return Table(root, name)


class Table:
    """The lines of one stage, found by item without being held in memory."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.path = root / f"{name}.jsonl"
        self._parts = root / f"{name}.parts"
        self._find()

    def _find(self) -> None:
        """Note where every line is, in the file and in the parts."""
        self._by_key: dict[str, list[Place]] = {}
        self._by_item: dict[str, list[Place]] = {}
        self._by_hand: dict[str, list[Place]] = {}  # lines that a person added, by the item they were added to
        self._instead: set[str] = set()  # items whose one result a person has written
        self._next_part = 0
        self._read(self.path)
        merged = set(self._by_key)
        for path in sorted(self._parts.glob("*.jsonl")):
            self._next_part = int(path.stem) + 1
            # A merge that was cut off leaves parts whose lines are in the file already, perhaps corrected since.
            self._read(path, merged=merged)

    def __iter__(self) -> Iterator[Row]:
        """All rows in the order of the file, those that were turned away included."""
        for place in self._places():
            yield row_of(_line(place))

    def kept(self) -> Iterator[Row]:
        """The rows that go on."""
        return (row for row in self if row.goes_on)

    def of(self, item_id: str) -> list[Row]:
        """The rows of one item."""
        return [row_of(_line(place)) for place in self._by_item.get(item_id, [])]

    def one(self, item_id: str) -> Row | None:
        """The row of an item that has one result; None if it has none."""
        rows = self.of(item_id)
        return rows[0] if rows else None

    def has(self, key: str, item: Item) -> bool:
        """Whether there is a result under a key, or one that a person wrote for the item."""
        return key in self._by_key or item.id in self._instead

    @property
    def added(self) -> set[str]:
        """The items that a person added lines to."""
        return set(self._by_hand)

    def found(self, key: str, item: Item) -> list[Row]:
        """The rows under a key, and those that a person added to the item."""
        return [row for row, _ in self._pairs(key, item)]

    def lines(self, key: str, item: Item, follows: Follows = lambda row: {}) -> Iterator[dict[str, Any]]:
        """The lines under a key as they are to be written: `about` brought up to date, added lines given their key.

        `follows` answers the values of a corrected line that follow from its others.
        """
        for row, line in self._pairs(key, item):
            yield _written(row, {**line, **follows(row)} if row.by_hand else line, key, item)

    def renewed(self, key: str, item: Item, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """New lines for what is there under a key; lines that a person has corrected stay in the place of new ones."""
        found = self._pairs(key, item, added=False)
        corrected = {row.id: _written(row, line, key, item) for row, line in found if row.by_hand}
        return [*(corrected.pop(line["id"], line) for line in lines), *corrected.values()]

    def _pairs(self, key: str, item: Item, *, added: bool = True) -> Iterator[tuple[Row, dict[str, Any]]]:
        seen: set[str] = set()
        found = [(place, _line(place)) for place in self._by_key.get(key, [])]
        if item.id in self._instead:
            found = [(place, line) for place, line in found if line.get("id") != item.id]
        if added:
            found += [(place, _line(place)) for place in self._by_hand.get(item.id, [])]
        for at, (place, line) in enumerate(found):
            if any(line == other for _, other in found[:at]):
                raise BadRun(f"{_where(place)}: a line that is there twice; delete one of the two")
            row = row_of(line, item)
            if item.id in seen:
                raise BadRun(f"{_where(place)}: a second line for {item.id!r}, which has one result; delete one of the two")
            if row.id in seen:  # a person has copied a line and changed the words: one that was added, from now on
                line = {name: value for name, value in line.items() if name != "seal"}
                row = row_of({**line, "id": None, "of": item.id}, item)
            if row.id not in seen:
                seen.add(row.id)
                yield row, line

    def commit(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write a batch as a part of its own, whole or not at all. What was there under the same keys is replaced."""
        path = self._parts / f"{self._next_part:06d}.jsonl"
        again = {line["key"] for line in lines if line["key"] in self._by_key}
        with writing(path):
            write_whole(path, b"".join(_bytes({**line, "again": True} if line["key"] in again else line) for line in lines))
        self._next_part += 1
        self._read(path, merged=again)

    def merge(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Make `lines` the file, and do away with the parts. The same lines leave the file untouched."""
        temporary = self.path.with_name(self.path.name + TEMPORARY)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as stream:
                stream.writelines(map(_bytes, lines))
            if digest(temporary) == digest(self.path):
                remove(temporary)
            else:
                sync(temporary)
                os.replace(temporary, self.path)
                sync(self.path.parent)
            shutil.rmtree(self._parts, ignore_errors=True)
        self._find()

    def counts(self) -> tuple[int, Counter[str]]:
        """How many rows go on, and how many each check turned away."""
        turned = Counter(row.check for row in self)
        return turned.pop("", 0), turned

    def _places(self) -> Iterator[Place]:
        for places in self._by_item.values():
            yield from places

    def _read(self, path: Path, *, merged: Collection[str] = ()) -> None:
        """Note where each line is; of `merged` keys only what replaces them. Lines written `again` replace what is known."""
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            place, replaced = 0, set[str]()
            for number, raw in enumerate(stream, start=1):
                if raw.strip():
                    where = f"{path}, line {number}"
                    line = _parsed(raw, where)
                    key = str(line.get("key"))
                    if line.get("again") and key in self._by_key and key not in replaced:
                        self._by_key.pop(key)
                        replaced.add(key)
                    if key not in merged or line.get("again"):
                        self._note(line, (path, place), where)
                place += len(raw)

    def _note(self, line: Mapping[str, Any], place: Place, where: str) -> None:
        item = line.get("of") or line.get("id")
        if not isinstance(item, str):
            raise BadRun(f'{where}: has neither "id" nor "of", so nobody knows what it belongs to; correct or delete it')
        if not _is_added(line):
            self._by_key.setdefault(line["key"], []).append(place)
        else:
            self._by_hand.setdefault(item, []).append(place)
            if line.get("id") == item:
                self._instead.add(item)
        self._by_item.setdefault(item, []).append(place)


def _is_added(line: Mapping[str, Any]) -> bool:
    """Whether a person wrote the line: those of a stage have a key and a seal. It belongs to its item, whatever decides that."""
    return not (isinstance(line.get("key"), str) and "seal" in line)


def _written(row: Row, line: Mapping[str, Any], key: str, item: Item) -> dict[str, Any]:
    own = {"id": row.id, **({"of": row.of} if row.of != row.id else {}), "key": key}
    about = {name: row.values[name] for name in item.about}
    rest = {name: value for name, value in line.items() if name not in (*own, *about, "of", "again")}
    return {**own, **about, **rest}


def digest(path: Path) -> str:
    """The hash of a file's content; nothing for one that is not there."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def _where(place: Place) -> str:
    path, start = place
    with path.open("rb") as stream:
        return f"{path}, line {stream.read(start).count(10) + 1}"


def _line(place: Place) -> dict[str, Any]:
    path, start = place
    with path.open("rb") as stream:
        stream.seek(start)
        return _parsed(stream.readline(), str(path))


def _parsed(raw: bytes, where: str) -> dict[str, Any]:
    try:
        line = parse_json(raw, what=where)
    except BadJson as error:
        raise BadRun(f"{error}; correct or delete it") from None
    if not isinstance(line, dict):
        raise BadRun(f"{where}: a line is a mapping in braces, got {type(line).__name__}; correct or delete it")
    return line


def _bytes(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "surrogatepass")


def sweep(root: Path) -> None:
    """Remove what a writer that was killed had not finished."""
    for path in [
        *root.glob(f"*{TEMPORARY}"),
        *root.glob(f"*.parts/*{TEMPORARY}"),
        *root.glob(f"blobs/*/*{TEMPORARY}"),
        *root.parent.glob(f"images/*/*{TEMPORARY}"),
    ]:
        remove(path)
