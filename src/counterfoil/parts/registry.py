"""Finds parts by name. A name is `kind:rest`, as in `timm:resnet50`; the kind is an entry point, the rest is its own.

Built-in parts register through the same entry points as plug-ins. A plug-in package declares, for example,

    [project.entry-points."counterfoil.generators"]
    brightness = "my_package:Brightness"

and `counterfoil run --generator brightness:` finds it. The object is called as `factory(rest, **options)`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadPart, BadSpec, CounterfoilError, UnknownName

FILES = {".py": "python:{}:FUNCTION", ".onnx": "onnx:{}", ".pt2": "pt2:{}", ".pt": "torchscript:{}", ".csv": "csv:{}"}
"""How a part that lies in a file of this kind is named, where the role has such parts."""

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
        rows.append(Listed(kind, package, _summary(role, entry)))
    return rows


def create(role: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The part called `name`, built with `options`."""
    _, _, rest = name.partition(":")
    # Look up first, load second, so that an error inside a plug-in is never read as an unknown name.
    factory = _import(role, _find(role, name))
    given = _placed(factory, options or {})
    try:
        inspect.signature(factory).bind(rest, **given)
    except TypeError as error:
        raise BadSpec(f"{role} {name!r}: {error}; {_options_of(factory)}") from None
    try:
        return factory(rest, **given)
    except CounterfoilError:
        raise
    except Exception as error:
        raise BadPart(f"{role} {name!r} could not be loaded: {_one_line(error)}") from error


def _find(role: str, name: str) -> EntryPoint:
    kinds = _kinds(role)
    kind, colon, _ = name.partition(":")
    if kind in kinds:
        return kinds[kind]
    near = difflib.get_close_matches(kind, kinds, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if not colon and (Path(name).suffix in FILES or not near):
        hint = _with_its_kind(role, name, kinds)
    raise UnknownName(f"no {role} named {kind!r}.{hint} 'counterfoil list {role}s' shows all {len(kinds)}")


def _with_its_kind(role: str, name: str, kinds: Mapping[str, EntryPoint]) -> str:
    """How to write a name that lacks its kind: by its ending if it is a file, else by the example most people need."""
    named = FILES.get(Path(name).suffix, "timm:{}" if role == "model" else "")
    if named.partition(":")[0] in kinds:
        return f" A name begins with its kind, as in {named.format(name)!r}."
    return " A name begins with its kind and a colon."


def _summary(role: str, entry: EntryPoint) -> str:
    """The first line of a part's documentation, read without importing it: that would take seconds for all parts, and one that
    lacks its library would keep the others from being listed."""
    module, _, attribute = entry.value.partition(":")
    source = _source(module)
    for node in ast.parse(source.read_text(encoding="utf-8")).body if source else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == attribute:
            return (ast.get_docstring(node) or "").split("\n")[0]
    return (inspect.getdoc(_import(role, entry)) or "").split("\n")[0]


def _source(module: str) -> Path | None:
    """The file that a module is read from, found without importing the packages around it."""
    top, *inner = module.split(".")
    found = find_spec(top)
    if found is None:
        return None
    if not inner:
        return Path(found.origin) if found.origin and found.origin.endswith(".py") else None
    places = [Path(place, *inner) for place in found.submodule_search_locations or ()]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def _import(role: str, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        raise BadPart(f"{role} {entry.name!r} ({entry.value}) cannot be imported: {_one_line(error)}") from error


def _placed(factory: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options where the factory takes them. A part around another, as `classifier:`, takes the other's under `options`:
    what it does not know itself is for the one inside. Other parts have no such option: what stands there is their own."""
    parameters = inspect.signature(factory).parameters
    under = options.get("options")
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) or not isinstance(under, Mapping | None):
        return dict(options)
    own = {key: value for key, value in options.items() if key != "options"}
    if "options" not in parameters:
        return {**(under or {}), **own}
    inside = {key: own.pop(key) for key in list(own) if key not in parameters}
    return {**own, "options": {**(under or {}), **inside}} if under or inside else own


def _options_of(factory: Any) -> str:
    names = list(inspect.signature(factory).parameters)[1:]
    return f"its options are {', '.join(names)}" if names else "it takes no options"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
