"""`run.json`: what a run is. Written once; a resumed run must ask for the same."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from counterfoil.core.errors import BadRun, BadSpec
from counterfoil.core.spec import FILLED_IN, FREE
from counterfoil.core.tables import parse_json, read_bytes
from counterfoil.store.files import plain, refuse_second_writer, write_whole, writing

NAME = "run.json"
SCHEMA = 3
"""Number of the layout of a run directory. Another one is refused."""

_MAKING = tuple(f"parts.generator.{name}" for name in ("mask", "encoder", "decoder", "style images"))
PINNED = ("data", "size", "parts.dataset", "parts.*.weights", *_MAKING)
"""Keys of the provenance that may not differ when a run is resumed; any other difference is noted and recorded."""

_ABSENT = object()

Steps = tuple[str, ...]
"""The keys that lead to a value in nested mappings; names of parts have dots in them."""


@dataclass(frozen=True)
class RunFile:
    """Content of `run.json`."""

    spec: Mapping[str, Any]
    classes: tuple[str, ...]
    provenance: Mapping[str, Any]
    resumed: tuple[Mapping[str, Any], ...] = ()  # provenance of later commands, where it differed

    def save(self, root: Path) -> None:
        """Write it into the run directory."""
        content = {"schema": SCHEMA, **asdict(self)}
        try:
            data = (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
        except UnicodeEncodeError:
            raise BadSpec("a name in the specification, the classes or the data is not text in UTF-8; rename it") from None
        with writing(root):
            write_whole(root / NAME, data)


def describe_run(spec: Mapping[str, Any], classes: Sequence[str], provenance: Mapping[str, Any]) -> RunFile:
    """Run file of what the caller asks, in the form in which it would be read back."""
    try:
        return RunFile(plain(spec), tuple(classes), plain(provenance))
    except ValueError as error:
        raise BadSpec(f"a specification is plain values only; {error}") from None


def check(path: str | os.PathLike[str], spec: Mapping[str, Any]) -> None:
    """Refuse a folder that holds a run of another specification, or that a process is writing to, before parts are loaded."""
    root = Path(path)
    if (root / NAME).exists():
        _check_spec(root, load(root).spec, plain(spec))
        refuse_second_writer(root)


def load(root: Path) -> RunFile:
    """Run file of a directory, or BadRun if this program cannot read it."""
    path = root / NAME
    try:
        content = parse_json(read_bytes(path), what=str(path))
        if content["schema"] != SCHEMA:
            version = f"schema {content['schema']}, this one reads {SCHEMA}"
            raise BadRun(f"{path}: written by another version of Counterfoil ({version}); make the run again in another --out")
        found: RunFile = TypeAdapter(RunFile).validate_python(content)
        return found
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


def resume(root: Path, stored: RunFile, asked: RunFile) -> list[str]:
    """Refuse unless `asked` is the run that is stored; record a new provenance and return notes on what is new in it."""
    _check_spec(root, stored.spec, asked.spec)
    classes, now = ({f"class {number}": name for number, name in enumerate(each.classes)} for each in (stored, asked))
    _refuse(root, classes, now, list(_differing(classes, now)))
    changed = [each for each in _differing(stored.provenance, asked.provenance) if not _same_release(each, stored, asked)]
    _refuse(root, stored.provenance, asked.provenance, [steps for steps in changed if _is_covered(steps, PINNED)])
    if changed and asked.provenance not in stored.resumed:
        replace(stored, resumed=(*stored.resumed, asked.provenance)).save(root)
    return [f"resumed with {_versus(stored.provenance, asked.provenance, changed)}"] if changed else []


def _same_release(steps: Steps, stored: RunFile, asked: RunFile) -> bool:
    """Tell whether only the development version differs, which is another one at each commit; the hash of the code decides."""
    if steps != ("versions", "counterfoil"):
        return False
    before, now = (str(_at(each.provenance, steps)).strip('"') for each in (stored, asked))
    return re.split(r"\.dev|\+", before)[0] == re.split(r"\.dev|\+", now)[0]


def _check_spec(root: Path, stored: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    _refuse(
        root,
        stored,
        asked,
        [steps for steps in _differing(stored, asked) if not (_is_covered(steps, FREE) or _left_open(steps, asked))],
    )


def _refuse(root: Path, stored: Mapping[str, Any], asked: Mapping[str, Any], places: Sequence[Steps]) -> None:
    if places:
        raise BadRun(f"{root}: holds a run with {_versus(stored, asked, places)}; choose another --out")


def _left_open(steps: Steps, asked: Mapping[str, Any]) -> bool:
    """Tell whether a key is left open for the parts to fill in."""
    value: Any = asked
    for step in steps:
        value = value.get(step)
    return value is None and ".".join(steps) in FILLED_IN


def _differing(stored: Mapping[str, Any], asked: Mapping[str, Any], above: Steps = ()) -> Iterator[Steps]:
    """Yield the places in which two nested mappings differ."""
    for key in dict.fromkeys([*asked, *stored]):
        before, now = stored.get(key, _ABSENT), asked.get(key, _ABSENT)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differing(before, now, (*above, key))
        elif before is _ABSENT or now is _ABSENT or before != now:
            yield (*above, key)


def _is_covered(steps: Steps, keys: Collection[str]) -> bool:
    """Tell whether a place is one of the dotted `keys` or below one; `*` stands for anything."""
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
