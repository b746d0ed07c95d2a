"""The protocols, found by name or by run through the entry point group `counterfoil.protocols`; no torch until one runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.core import spec as specs
from counterfoil.core.errors import BadPart, BadRun, BadSpec, one_line
from counterfoil.core.spec import RunSpec
from counterfoil.protocols.base import Protocol

if TYPE_CHECKING:
    from counterfoil import store
    from counterfoil.protocols.reading import Run

__all__ = ["Protocol", "entries", "get", "names", "of", "override", "parse", "parse_here", "run", "working"]

GROUP = "counterfoil.protocols"
USUAL = "fmr"
"""The protocol of a specification that names none."""


def names() -> tuple[str, ...]:
    """Name the protocols that are installed, the usual one first."""
    return tuple(sorted(entries(), key=lambda name: (name != USUAL, name)))


@cache
def get(name: str) -> Protocol:
    """Find a protocol by name; BadSpec if there is none."""
    entry = entries().get(name)
    if entry is None:
        near = difflib.get_close_matches(name, names(), n=1)
        raise BadSpec(
            f"no protocol named {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}")
        )
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # whatever a plug-in's module raises
        raise BadPart(f"protocol {name!r} ({entry.value}) cannot be imported: {one_line(error)}") from error
    if not isinstance(found, Protocol) or found.name != name:
        raise BadPart(f"protocol {name!r} ({entry.value}) is not a Protocol of that name; register an instance of one")
    return found


def working() -> dict[str, Protocol]:
    """The protocols that can be imported, by name; a broken plug-in is named where it is asked for."""
    found = {}
    for name in names():
        with suppress(BadPart):
            found[name] = get(name)
    return found


def of(run: store.Run) -> Protocol:
    """Find the protocol a run was made by; BadRun if it is not installed."""
    name = str(run.spec.get("protocol", USUAL))
    if name not in entries():
        raise BadRun(f"{run.path}: a run of protocol {name!r}, which is not installed; there are {', '.join(names())}")
    return get(name)


def parse(values: Mapping[str, Any]) -> Any:
    """Read a specification from plain values, of the class that its `protocol` asks for."""
    return specs.parse(values, _kind(values), kinds=lambda: {name: each.spec for name, each in working().items()})


def parse_here(values: Mapping[str, Any]) -> Any:
    """Read a specification for this machine: a precision that its GPU lacks is not taken as a default."""
    engine = specs.sections(_kind(values)).get("engine")
    if engine is not None and "precision" in engine.model_fields:
        from counterfoil.parts.fast.dtypes import with_supported_precision

        values = with_supported_precision(values)
    return parse(values)


def override(values: dict[str, Any], assignment: str) -> None:
    """Apply `key=value` to the plain values of a specification, as in `search.budget=10`."""
    specs.override(values, assignment, _kind(values))


def run(spec: RunSpec, out: str | Path, **options: Any) -> Run:
    """Run a specification of any protocol into a directory, or resume it there; the options are those of `Protocol.run`."""
    from counterfoil.protocols.reading import open_run

    get(spec.protocol).run(spec, Path(out), **options)
    return open_run(out)


def _kind(values: Mapping[str, Any]) -> type[RunSpec]:
    return get(str(values.get("protocol", USUAL))).spec


@cache
def entries() -> Mapping[str, EntryPoint]:
    """Entry points of the protocols that are installed, by name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise BadPart(
                f"two packages register the protocol {entry.name!r}: {other.value} and {entry.value}; uninstall one of them"
            )
    return found
