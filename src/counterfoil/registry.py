"""Finds parts by name. A name is `kind:rest`, as in `timm:resnet50`; the kind is an entry point, the rest is its own.

Built-in parts register through the same entry points as plug-ins. A plug-in package declares, for example,

    [project.entry-points."counterfoil.generators"]
    brightness = "my_package:Brightness"

and `counterfoil run --generator brightness:` finds it. The object is called as `factory(rest, **options)`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from counterfoil.errors import BadPart, BadSpec, CounterfoilError, UnknownName

ROLES = ("model", "generator", "oracle", "dataset", "captioner", "rewriter", "editor", "painter", "encoder", "chat")


@dataclass(frozen=True)
class Listed:
    """One line of `counterfoil list`."""

    kind: str
    package: str
    summary: str


@cache
def _kinds(role: str) -> Mapping[str, EntryPoint]:
    if role not in ROLES:
        raise UnknownName(f"no role named {role!r}; roles are {', '.join(ROLES)}")
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"counterfoil.{role}s"):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise BadPart(
                f"two packages register the {role} {entry.name!r}: {other.value} and {entry.value}; uninstall one of them"
            )
        found[entry.name] = entry
    return found


def listed(role: str) -> list[Listed]:
    """The kinds registered for a role, with the first line of their documentation."""
    rows = []
    for kind, entry in sorted(_kinds(role).items()):
        package = entry.dist.name if entry.dist is not None else "?"
        rows.append(Listed(kind, package, (inspect.getdoc(_import(role, entry)) or "").split("\n")[0]))
    return rows


def create(role: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The part called `name`, built with `options`."""
    kind, _, rest = name.partition(":")
    # Look up first, load second, so that an error inside a plug-in is never read as an unknown name.
    factory = _import(role, _find(role, kind))
    try:
        inspect.signature(factory).bind(rest, **(options or {}))
    except TypeError as error:
        raise BadSpec(f"{role} {name!r}: {error}; {_options_of(factory)}") from None
    try:
        return factory(rest, **(options or {}))
    except CounterfoilError:
        raise
    except Exception as error:
        raise BadPart(f"{role} {name!r} could not be loaded: {_one_line(error)}") from error


def _find(role: str, kind: str) -> EntryPoint:
    kinds = _kinds(role)
    if kind in kinds:
        return kinds[kind]
    near = difflib.get_close_matches(kind, kinds, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownName(f"no {role} named {kind!r}.{hint} 'counterfoil list {role}s' shows all {len(kinds)}")


def _import(role: str, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        raise BadPart(f"{role} {entry.name!r} ({entry.value}) cannot be imported: {_one_line(error)}") from error


def _options_of(factory: Any) -> str:
    names = list(inspect.signature(factory).parameters)[1:]
    return f"its options are {', '.join(names)}" if names else "it takes no options"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
