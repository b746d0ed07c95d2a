"""What goes into a stage and what comes out of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from counterfoil.store.files import plain

KEY_LENGTH = 20
_OWN = ("id", "of", "key", "seal", "check", "reason", "retry", "again")
"""What a line says about itself; every other entry is a value."""


@dataclass(frozen=True)
class Item:
    """One thing a stage works on."""

    id: str  # unique in its stage, and the same from run to run
    inputs: Mapping[str, Any] = field(default_factory=dict)  # plain values that decide the result; pictures by their hash
    about: Mapping[str, Any] = field(
        default_factory=dict
    )  # written beside the result for people and later stages; decide nothing


@dataclass(frozen=True)
class Made:
    """One result for an item: values that go on, or values that a check turned away."""

    values: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""  # tells several results of one item apart
    check: str = ""  # which check turned it away, in a word or two that can be counted; empty for what goes on
    reason: str = ""  # why, in a line
    retry: bool = False  # whether the next start shall try again, as when an endpoint was down


def turned_away(check: str, reason: str, *, retry: bool = False, **values: Any) -> Made:
    """A result that does not go on."""
    return Made(values, check=check, reason=" ".join(reason.split()), retry=retry)


@dataclass(frozen=True)
class Row:
    """One line of a stage's table."""

    id: str
    of: str  # the item it was made of
    values: Mapping[str, Any]
    check: str = ""
    reason: str = ""
    retry: bool = False
    by_hand: bool = False  # whether a person has corrected or added it

    @property
    def goes_on(self) -> bool:
        """Whether no check turned it away."""
        return not self.check

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class Items:
    """Items that can be gone through more than once without being held."""

    again: Callable[[], Iterator[Item]]
    total: int | None = None

    def __iter__(self) -> Iterator[Item]:
        return self.again()


def key_of(stage: str, settings: Mapping[str, Any], item: Item) -> str:
    """The address of an item's result: changes with anything that decides it, and with nothing else."""
    content = {"stage": stage, "settings": plain(settings), "id": item.id, "inputs": plain(item.inputs)}
    return _hash(content)[:KEY_LENGTH]


def line_of(item: Item, key: str, made: Made) -> dict[str, Any]:
    """A result as it is written."""
    clash = [name for name in (*made.values, *item.about) if name in _OWN]
    if clash:
        raise ValueError(f"{item.id}: a result may not be called {clash[0]!r}; that is what a line says about itself")
    said = _said(plain(made.values), made.check, made.reason)
    line: dict[str, Any] = {"id": f"{item.id}#{made.name}" if made.name else item.id}
    if made.name:
        line["of"] = item.id
    line |= {"key": key, **plain(item.about), **said}
    if made.retry:
        line["retry"] = True
    return {**line, "seal": seal(said)}


def row_of(line: Mapping[str, Any], item: Item | None = None) -> Row:
    """A line as it is read; `about` comes from the item as it is now, where there is one."""
    values = {name: value for name, value in line.items() if name not in _OWN}
    about = plain(item.about) if item is not None else {}
    of = str(line.get("of") or line.get("id", ""))
    name = str(line.get("id") or f"{of}#hand-{_hash(values)[:8]}")
    said = _said({key: value for key, value in values.items() if key not in about}, line.get("check", ""), line.get("reason", ""))
    return Row(
        id=name,
        of=of,
        values={**values, **about},
        check=str(line.get("check", "")),
        reason=str(line.get("reason", "")),
        retry=bool(line.get("retry", False)),
        by_hand=item is not None and line.get("seal") != seal(said),
    )


def seal(said: Mapping[str, Any]) -> str:
    """A few letters that no longer fit once a person has changed the line."""
    return _hash(said)[:6]


def _said(values: Mapping[str, Any], check: Any, reason: Any) -> dict[str, Any]:
    said = dict(values)
    if check:
        said |= {"check": check, "reason": reason}
    return said


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
