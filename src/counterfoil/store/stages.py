"""Tables of stages: JSON lines that people may correct, and the images and tensors that lines refer to.

    stages/captions.jsonl    a line per result, in the order of the items; people may correct it between stages
    stages/captions.parts/   results of a stage in progress; merged into the file above when it is complete
    stages/blobs/3f/3f….bin  tensors that lines refer to, named by their content; images are with the run's others

A line's `key` is a hash of the stage's settings and of the item's inputs. A line whose key is still asked for stays as it
is, corrected or not; what is made of it has another input then, and is made again. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from counterfoil.core.errors import BadRun
from counterfoil.core.tables import BadJson, parse_json
from counterfoil.store.files import TEMPORARY, plain, remove, sha256_of, sync, write_whole, writing
from counterfoil.store.images import IMAGES, ImageFile, Images

FOLDER = "stages"
"""Place of the tables in a run directory."""

KEY_LENGTH = 20
_OWN = ("id", "of", "key", "seal", "check", "reason", "retry", "again")
"""Entries that describe a line itself; every other entry is a value."""


@dataclass(frozen=True)
class Item:
    """One thing that a stage works on."""

    id: str  # unique in its stage, and the same from run to run
    inputs: Mapping[str, Any] = field(default_factory=dict)  # plain values that decide the result; images by their hash
    about: Mapping[str, Any] = field(
        default_factory=dict
    )  # written next to the result for people and later stages; decide nothing


@dataclass(frozen=True)
class Made:
    """One result for an item: values that later stages use, or values that a check rejected."""

    values: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""  # tells several results of one item apart
    check: str = ""  # which check rejected it, in a word or two that can be counted; empty for what passed
    reason: str = ""  # why, in a line
    retry: bool = False  # whether the next start shall try again, as when an endpoint was down


def turned_away(check: str, reason: str, *, retry: bool = False, **values: Any) -> Made:
    """A result that a check rejected."""
    return Made(values, check=check, reason=" ".join(reason.split()), retry=retry)


class Row:
    """One line of a stage's table. What it says about its item is taken from the item as it is now, where that is known."""

    def __init__(self, line: Mapping[str, Any], item: Item | None = None) -> None:
        self.line, self.item = line, item
        about = plain(item.about) if item is not None else {}
        own = {name: value for name, value in line.items() if name not in _OWN}
        self.values: Mapping[str, Any] = {**own, **about}
        self.of = str(line.get("of") or line.get("id", ""))
        """The item it was made of."""
        self.id = str(line.get("id") or f"{self.of}#hand-{_hash(own)[:8]}")
        self.check, self.reason = str(line.get("check", "")), str(line.get("reason", ""))
        self.retry = bool(line.get("retry", False))
        told = _with_check({name: value for name, value in own.items() if name not in about}, self.check, self.reason)
        self.by_hand = item is not None and line.get("seal") != _hash(told)[:6]
        """True if a person has corrected or added it."""

    @property
    def goes_on(self) -> bool:
        """Tell whether no check rejected it."""
        return not self.check

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def rewrite(self, key: str, **following: Any) -> dict[str, Any]:
        """The line as it is to be written under a key, with values that follow from its others."""
        own = {"id": self.id, **({"of": self.of} if self.of != self.id else {}), "key": key}
        own |= {name: self.values[name] for name in (self.item.about if self.item is not None else ())}
        line = {**self.line, **following}
        return {**own, **{name: value for name, value in line.items() if name not in (*own, "of", "again")}}


def key_of(stage: str, settings: Mapping[str, Any], item: Item) -> str:
    """Key of an item's result: changes with anything that decides it, and with nothing else."""
    content = {"stage": stage, "settings": plain(settings), "id": item.id, "inputs": plain(item.inputs)}
    return _hash(content)[:KEY_LENGTH]


def line_of(item: Item, key: str, made: Made) -> dict[str, Any]:
    """A result as it is written. Its seal no longer fits once a person has changed it."""
    clash = [name for name in (*made.values, *item.about) if name in _OWN]
    if clash:
        raise ValueError(f"{item.id}: a result may not be called {clash[0]!r}; that is what a line says about itself")
    told = _with_check(plain(made.values), made.check, made.reason)
    own = {"id": f"{item.id}#{made.name}", "of": item.id} if made.name else {"id": item.id}
    return {**own, "key": key, **plain(item.about), **told, **({"retry": True} if made.retry else {}), "seal": _hash(told)[:6]}


def _with_check(values: Mapping[str, Any], check: str, reason: str) -> dict[str, Any]:
    return {**values, **({"check": check, "reason": reason} if check else {})}


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


Place = tuple[Path, int]  # a file and where in it a line begins
Follows = Callable[[Row], Mapping[str, Any]]


class StageTable:
    """The lines of one stage, found by item without being held in memory; none if the stage has not begun."""

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
        """All rows in the order of the file, rejected ones included."""
        return (Row(_line(place)) for places in self._by_item.values() for place in places)

    def passing(self) -> Iterator[Row]:
        """The rows that passed."""
        return (row for row in self if row.goes_on)

    def of(self, item_id: str) -> list[Row]:
        """The rows of one item."""
        return [Row(_line(place)) for place in self._by_item.get(item_id, [])]

    def one(self, item_id: str) -> Row | None:
        """The row of an item that has one result; None if it has none."""
        return next(iter(self.of(item_id)), None)

    @property
    def added(self) -> set[str]:
        """The items that a person added lines to."""
        return set(self._by_hand)

    def has(self, key: str, item: Item) -> bool:
        """Tell whether there is a result under a key, or one that a person wrote for the item."""
        return key in self._by_key or item.id in self._instead

    def find(self, key: str, item: Item, *, added: bool = True) -> Iterator[Row]:
        """The rows under a key, and those that a person added to the item."""
        seen: set[str] = set()
        found = [(place, _line(place)) for place in self._by_key.get(key, [])]
        if item.id in self._instead:
            found = [(place, line) for place, line in found if line.get("id") != item.id]
        if added:
            found += [(place, _line(place)) for place in self._by_hand.get(item.id, [])]
        for at, (place, line) in enumerate(found):
            if any(line == other for _, other in found[:at]):
                raise BadRun(f"{_where(place)}: a line that is there twice; delete one of the two")
            row = Row(line, item)
            if item.id in seen:
                raise BadRun(f"{_where(place)}: a second line for {item.id!r}, which has one result; delete one of the two")
            if row.id in seen:  # a person has copied a line and changed the words: one that was added, from now on
                kept = {name: value for name, value in line.items() if name not in ("id", "seal")}
                row = Row({**kept, "of": item.id}, item)
            if row.id not in seen:
                seen.add(row.id)
                yield row

    def lines(self, key: str, item: Item, follows: Follows = lambda row: {}) -> Iterator[dict[str, Any]]:
        """The lines under a key as they are to be written: `about` brought up to date, added lines given their key.

        `follows` answers the values of a corrected line that follow from its others.
        """
        return (row.rewrite(key, **(follows(row) if row.by_hand else {})) for row in self.find(key, item))

    def renew(self, key: str, item: Item, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """New lines for what is there under a key; lines that a person has corrected stay in the place of new ones."""
        corrected = {row.id: row.rewrite(key) for row in self.find(key, item, added=False) if row.by_hand}
        return [*(corrected.pop(line["id"], line) for line in lines), *corrected.values()]

    def commit(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write a batch as a file of its own, whole or not at all. Lines under the same keys are replaced."""
        path = self._parts / f"{self._next_part:06d}.jsonl"
        again = {line["key"] for line in lines if line["key"] in self._by_key}
        with writing(path):
            write_whole(path, b"".join(_bytes({**line, "again": True} if line["key"] in again else line) for line in lines))
        self._next_part += 1
        self._read(path, merged=again)

    def merge(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Make `lines` the file, and remove the batches. The same lines leave the file untouched."""
        temporary = self.path.with_name(self.path.name + TEMPORARY)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as stream:
                stream.writelines(map(_bytes, lines))
            if sha256_of(temporary) == sha256_of(self.path):
                remove(temporary)
            else:
                sync(temporary)
                os.replace(temporary, self.path)
                sync(self.path.parent)
            shutil.rmtree(self._parts, ignore_errors=True)
        self._find()

    def counts(self) -> tuple[int, Counter[str]]:
        """Numbers of rows that passed, and of those that each check rejected."""
        turned = Counter(row.check for row in self)
        return turned.pop("", 0), turned

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
                    line = _parse(raw, where)
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
            raise BadRun(f'{where}: has neither "id" nor "of", so its item is unknown; correct or delete it')
        if isinstance(line.get("key"), str) and "seal" in line:  # a stage wrote it
            self._by_key.setdefault(line["key"], []).append(place)
        else:
            self._by_hand.setdefault(item, []).append(place)
            if line.get("id") == item:
                self._instead.add(item)
        self._by_item.setdefault(item, []).append(place)


def _where(place: Place) -> str:
    path, start = place
    with path.open("rb") as stream:
        return f"{path}, line {stream.read(start).count(10) + 1}"


def _line(place: Place) -> dict[str, Any]:
    path, start = place
    with path.open("rb") as stream:
        stream.seek(start)
        return _parse(stream.readline(), str(path))


def _parse(raw: bytes, where: str) -> dict[str, Any]:
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
    """Remove what a killed writer had not finished."""
    for place in (f"{FOLDER}/", f"{FOLDER}/*.parts/", f"{FOLDER}/blobs/*/", f"{IMAGES}/*/"):
        for path in root.parent.glob(f"{place}*{TEMPORARY}"):
            remove(path)


class Blobs:
    """Files of a run that lines of stage tables name by their content, as in `3f/3f….png`.

    Images lie with those of the run's trials, so that each is stored once.
    """

    def __init__(self, run: Path) -> None:
        self._run, self._images = run, Images(run)

    def put(self, content: bytes, suffix: str) -> str:
        """Store `content` and return its name."""
        digest = hashlib.sha256(content).hexdigest()
        name = f"{digest[:2]}/{digest}{suffix}"
        if name not in self:
            with writing(self.path(name)):
                write_whole(self.path(name), content, token=uuid.uuid4().hex)
        return name

    def path(self, name: str) -> Path:
        """Place of a blob that is a file of its own."""
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise BadRun(f"{self._run / FOLDER}: {name!r} points outside the run; correct the line that names it")
        return self._run / (IMAGES if inside.suffix == ".png" else f"{FOLDER}/blobs") / inside

    def _file(self, name: str) -> Path | ImageFile:
        place = self.path(name)
        return self._images.at(image_of(name)) if place.suffix == ".png" else place

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._file(name).is_file()

    def read(self, name: str) -> bytes:
        """Content of a blob."""
        try:
            return self._file(name).read_bytes()
        except OSError as error:
            raise BadRun(f"{self.path(name)}: cannot be read ({error.strerror}); repeat the run's command") from None

    @staticmethod
    def hash_of(name: str) -> str:
        """The SHA-256 that a name holds."""
        return PurePosixPath(name).name.partition(".")[0]


def image_of(blob: str) -> str:
    """Name of an image in the run's records, by its name in a stage table."""
    return f"{IMAGES}/{blob}"
