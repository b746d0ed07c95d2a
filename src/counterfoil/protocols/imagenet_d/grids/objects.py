"""The things a grid paints: each a class of the set, with the ids under which classifiers know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadSpec
from counterfoil.parts import labels
from counterfoil.protocols.imagenet_d.grids.words import named, read_yaml

_KEYS = ("ids", "lead", "phrase")


@dataclass(frozen=True)
class Thing:
    """One object. A classifier that says any of its ids is right."""

    name: str
    ids: tuple[str, ...]  # names or WordNet ids in a classifier's label space; its own name if it has no others
    lead: str = ""  # what stands before it instead of "a" or "an", as in "a pair of"
    phrase: str = ""  # how a prompt says it; its name if empty

    @property
    def spoken(self) -> str:
        """The words of a prompt."""
        return self.phrase or self.name


def read_objects(given: Any, *, what: str = "grid: objects") -> list[Thing]:
    """The objects of a grid: a list of names, a mapping from name to ids, or a file or list of the package with one."""
    if isinstance(given, str):
        content = read_yaml(named(given) or Path(given).expanduser(), what=what)
        return read_objects(content.get("objects", content) if isinstance(content, Mapping) else content, what=what)
    if isinstance(given, list):
        given = {str(name): None for name in given}
    if not isinstance(given, Mapping) or not given:
        raise BadSpec(f"{what}: none given; list names, or map each name to its ids")
    things = [_thing(str(name), value, what) for name, value in given.items()]
    homes: dict[str, str] = {}
    for thing in things:
        for each in thing.ids:
            other = homes.setdefault(labels.key(each), thing.name)
            if other != thing.name:
                raise BadSpec(f"{what}: {each!r} belongs to {other!r} and to {thing.name!r}; give each id to one object")
    if len(things) < 2:
        raise BadSpec(f"{what}: only {things[0].name!r}; a test of a classifier needs two or more")
    return things


def _thing(name: str, value: Any, what: str) -> Thing:
    if value is None:
        return Thing(name, (name,))
    if isinstance(value, str | int):
        value = [value]
    if isinstance(value, list):
        return Thing(name, _ids(name, value, what))
    if not isinstance(value, Mapping) or (unknown := [key for key in value if key not in _KEYS]):
        problem = f"unknown key {unknown[0]!r}" if isinstance(value, Mapping) else f"got {value!r:.40}"
        raise BadSpec(f"{what}: {name!r} is described by ids, or by {', '.join(_KEYS)}; {problem}")
    ids = _ids(name, value["ids"], what) if "ids" in value else (name,)
    return Thing(name, ids, lead=str(value.get("lead", "")), phrase=str(value.get("phrase", "")))


def _ids(name: str, value: Any, what: str) -> tuple[str, ...]:
    ids = [value] if isinstance(value, str | int) else value
    if not isinstance(ids, list) or not ids:
        raise BadSpec(f"{what}: {name!r} has no ids; list the classes it stands for, or leave ids out to match it by name")
    return tuple(str(each) for each in ids)
