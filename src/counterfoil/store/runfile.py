"""`run.json`: what a run is. Written once; a resumed run must ask for the same."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadRun, BadSpec
from counterfoil.store import canonical, schema
from counterfoil.store.files import write_whole, writing

NAME = "run.json"

_MAKING = tuple(f"parts.generator.{name}" for name in ("mask", "encoder", "decoder", "style pictures"))
PINNED = ("data", "size", "parts.dataset", "parts.*.weights", *_MAKING)
"""Keys of the provenance that may not differ when a run is resumed; any other difference is noted and recorded."""

_ABSENT = object()

Steps = tuple[str, ...]
"""The keys that lead to a value in nested mappings; names of parts have dots in them."""


@dataclass(frozen=True)
class RunFile:
    """The content of `run.json`."""

    spec: Mapping[str, Any]
    classes: tuple[str, ...]
    provenance: Mapping[str, Any]
    resumed: tuple[Mapping[str, Any], ...] = ()  # provenance of later sittings, where it differed

    def save(self, root: Path) -> None:
        """Write it into the run directory."""
        content = {
            "schema": schema.VERSION,
            "spec": self.spec,
            "classes": list(self.classes),
            "provenance": self.provenance,
            "resumed": list(self.resumed),
        }
        with writing(root):
            write_whole(root / NAME, _json(content))


def described(spec: Mapping[str, Any], classes: Sequence[str], provenance: Mapping[str, Any]) -> RunFile:
    """The run file for what the caller asks, in the form it would be read back."""
    try:
        return RunFile(canonical.plain(spec), tuple(classes), canonical.plain(provenance))
    except ValueError as error:
        raise BadSpec(f"a specification is plain values only; {error}") from None


def load(root: Path) -> RunFile:
    """The run file of a directory, or BadRun if this program cannot read it."""
    path = root / NAME
    try:
        content = json.loads(path.read_bytes())
        version = content["schema"]
        if version > schema.VERSION:
            raise BadRun(f"{path}: written by a newer Counterfoil (schema {version}, this one reads {schema.VERSION}); update it")
        return RunFile(
            spec=content["spec"],
            classes=tuple(content["classes"]),
            provenance=content["provenance"],
            resumed=tuple(content["resumed"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        raise BadRun(f"{root}: not a run directory ({_why_not(root)}); give the --out of a run{_runs_near(root)}") from None
    except OSError as error:
        raise BadRun(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadRun(f"{path}: damaged ({type(error).__name__}); restore it, or choose another --out") from None


def _why_not(place: Path) -> str:
    return f"no {NAME}" if place.is_dir() else "it is a file, and a run is a folder" if place.exists() else "no such folder"


def _runs_near(place: Path, shown: int = 4) -> str:
    """The runs in a folder, or around a place that is none: people give the folder around runs, or a file of one."""
    folder = place if place.is_dir() else place.parent
    found = sorted(str(path.parent) for path in (*folder.glob(NAME), *folder.glob(f"*/{NAME}")))
    more = f" and {len(found) - shown} more" if len(found) > shown else ""
    return f"; here are {', '.join(found[:shown])}{more}" if found else ""


def resume(root: Path, stored: RunFile, asked: RunFile, *, free: Collection[str], pinned: Collection[str]) -> list[str]:
    """Refuse unless `asked` is the run that is stored; record a new provenance and say in notes what is new in it."""
    other = [steps for steps in _differing(stored.spec, asked.spec) if not _covered(steps, free)]
    if other:
        raise BadRun(f"{root}: holds a run with {_versus(stored.spec, asked.spec, other)}; choose another --out")
    if stored.classes != asked.classes:
        difference = _first_difference(stored.classes, asked.classes)
        raise BadRun(f"{root}: holds a run over other classes ({difference}); choose another --out")
    changed = list(_differing(stored.provenance, asked.provenance))
    fixed = [steps for steps in changed if _covered(steps, pinned)]
    if fixed:
        difference = _versus(stored.provenance, asked.provenance, fixed)
        raise BadRun(f"{root}: holds a run with {difference}; choose another --out")
    if changed and asked.provenance not in stored.resumed:
        replace(stored, resumed=(*stored.resumed, asked.provenance)).save(root)
    return [f"resumed with {_versus(stored.provenance, asked.provenance, changed)}"] if changed else []


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _differing(stored: Mapping[str, Any], asked: Mapping[str, Any], above: Steps = ()) -> Iterator[Steps]:
    """Where two nested mappings differ."""
    for key in dict.fromkeys([*asked, *stored]):
        before, now = stored.get(key, _ABSENT), asked.get(key, _ABSENT)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differing(before, now, (*above, key))
        elif before is _ABSENT or now is _ABSENT or before != now:
            yield (*above, key)


def _covered(steps: Steps, keys: Collection[str]) -> bool:
    """Whether a place is one of the dotted `keys` or below one; `*` stands for anything."""
    return any(fnmatchcase(".".join(steps), pattern) for each in keys for pattern in (each, f"{each}.*"))


def _versus(stored: Mapping[str, Any], asked: Mapping[str, Any], places: Sequence[Steps]) -> str:
    """`seed 0, now 1` for the first few places."""
    shown = [f"{'.'.join(steps)} {_at(stored, steps)}, now {_at(asked, steps)}" for steps in places[:3]]
    return "; ".join(shown) + (f"; and {len(places) - 3} more" if len(places) > 3 else "")


def _at(values: Mapping[str, Any], steps: Steps) -> str:
    value: Any = values
    for step in steps:
        value = value.get(step, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    if value is _ABSENT:
        return "not given"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _first_difference(stored: Sequence[str], asked: Sequence[str]) -> str:
    for index, (before, now) in enumerate(zip(stored, asked, strict=False)):
        if before != now:
            return f"class {index} is {before!r}, now {now!r}"
    return f"{len(stored)} classes, now {len(asked)}"
