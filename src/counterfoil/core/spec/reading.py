"""Specifications from plain values, YAML files and `--set`; every complaint is one line that names the key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from counterfoil.core.errors import BadData, BadSpec, one_line
from counterfoil.core.spec.base import PartSpec, RunSpec, Strict
from counterfoil.core.tables import parse_yaml, read_text

Kinds = Callable[[], Mapping[str, type[RunSpec]]]
"""Answers the specification of every protocol by its name; asked only for a hint about a key of another one."""

LONGEST = 2**20  # bytes of a specification


def parse(values: Mapping[str, Any], kind: type[RunSpec], *, kinds: Kinds = dict) -> Any:
    """Read a specification of one kind from plain values."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        items = error.errors()
        missing = [".".join(map(str, item["loc"])) for item in items if item["type"] == "missing"]
        others = [_complaint(item, kind, kinds) for item in items if item["type"] != "missing"]
        raise BadSpec("; ".join([*_missing(missing), *others])) from None


def part(name: str, assignments: Sequence[str] | None = None) -> PartSpec:
    """A part by name with options given as `key=value`."""
    options: dict[str, Any] = {}
    for assignment in assignments or ():
        key, value = _assigned(assignment)
        options[key] = value
    return PartSpec(name=name, options=options)


def read(path: Path) -> dict[str, Any]:
    """The plain values of a YAML file."""
    try:
        values = parse_yaml(read_text(path, limit=LONGEST), what=str(path))
    except BadData as error:
        raise BadSpec(str(error)) from None
    if not isinstance(values, dict):
        raise BadSpec(f"{path}: a specification is a mapping of keys to values, got {type(values).__name__}")
    return values


def override(values: dict[str, Any], assignment: str, kind: type[RunSpec]) -> None:
    """Apply `key=value`, as in `search.budget=10`; a key that stands in one place only needs no section."""
    key, value = _assigned(assignment)
    *route, leaf = key.split(".")
    if not route and leaf not in kind.model_fields:
        route = _section_of(leaf, kind)
    target = values
    for section in route:
        inner = target.setdefault(section, {})
        if isinstance(inner, str):  # a bare part name: `--set generator.space=code` gives it an option
            inner = target[section] = {"name": inner}
        if not isinstance(inner, dict):
            raise BadSpec(f"--set {key}: {section} is {inner!r}, which has no keys")
        target = inner
    if set(target) == {"name", "options"} and leaf not in target:  # a part as a run keeps it and --dry-run prints it
        target = target["options"]
    target[leaf] = value


def sections(kind: type[RunSpec]) -> dict[str, type[BaseModel]]:
    """The groups of settings of a protocol's specification: `search`, `engine`, …"""
    kinds = {name: each.annotation for name, each in kind.model_fields.items()}
    return {
        name: found
        for name, found in kinds.items()
        if isinstance(found, type) and issubclass(found, Strict) and not issubclass(found, PartSpec)
    }


def _assigned(assignment: str) -> tuple[str, Any]:
    key, equals, text = assignment.partition("=")
    if not equals:
        raise BadSpec(f"--set {assignment!r}: write KEY=VALUE, as in --set budget=10")
    try:
        return key.strip(), parse_yaml(text, what=f"--set {one_line(assignment, 60)!r}")
    except BadData as error:
        raise BadSpec(f"{error}; put quotes around a value that is text") from None


def _section_of(leaf: str, kind: type[RunSpec]) -> list[str]:
    homes = _homes(kind)
    if leaf in homes:
        return [homes[leaf]]
    raise BadSpec(f"--set {leaf}: {_unknown(leaf, [*kind.model_fields, *homes])}")


def _homes(kind: type[RunSpec]) -> dict[str, str]:
    """The section that each key stands in."""
    return {name: section for section, settings in sections(kind).items() for name in settings.model_fields}


def _missing(keys: list[str]) -> list[str]:
    """What is to be said of keys that have to be there and are not: one line for all of them."""
    if not keys:
        return []
    each = "one" if len(keys) == 1 else "each"
    return [
        f"no {', '.join(keys)} given; name {each}, as in --{keys[0]} NAME or '{keys[0]}: NAME' in the file; "
        "'counterfoil list' shows what there is"
    ]


def _complaint(item: Any, kind: type[RunSpec], kinds: Kinds) -> str:
    where = ".".join(str(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        elsewhere = [name for name, other in kinds().items() if where in other.model_fields and where not in kind.model_fields]
        if elsewhere:
            return f"{where} is for the protocol {' or '.join(elsewhere)}; leave it out, or choose that with --protocol"
        if where in (homes := _homes(kind)):
            return f"{where} is a key of {homes[where]}; write '{homes[where]}: {{{where}: …}}'"
        section = sections(kind).get(str(item["loc"][0])) if len(item["loc"]) > 1 else kind
        return _unknown(where, list(section.model_fields) if section else [])
    if item["type"] == "value_error":  # of a specification's own checks, which say all there is to say
        return ": ".join(filter(None, (where, str(item["ctx"]["error"]))))
    return f"{where}: {item['msg'].lower()}, got {one_line(repr(item['input']), 80)}"


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"
