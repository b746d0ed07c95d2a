"""Models and oracles that were asked about a run's pictures later: what they said of themselves, and why one may not count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from counterfoil.core.errors import BadRun
from counterfoil.store.canonical import canonical
from counterfoil.store.files import write_whole, writing

NAME = "asked.json"
Role = Literal["model", "oracle"]


@dataclass(frozen=True)
class Asked:
    """One part that was asked later. `caution` says why it is not independent of the run, or nothing."""

    role: Role
    name: str  # what its answers are kept under
    provenance: Mapping[str, str]
    caution: str = ""
    part: Mapping[str, Any] = field(default_factory=dict)  # its own name and options; older records have none


def asked_of(run: Path) -> list[Asked]:
    """Those that a run has a record of, in the order of their names; older runs have none."""
    path = run / NAME
    try:
        return [_read(entry) for entry in json.loads(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadRun(f"{path}: damaged ({type(error).__name__}); delete it and ask again, by 'judge' or 'score'") from None


def record(run: Path, part: Asked) -> None:
    """Enter a part, in the place of an earlier one of its role and name. Only the holder of the run's lock may."""
    every = {(each.role, each.name): each for each in asked_of(run)}
    every[part.role, part.name] = part
    with writing(run):
        write_whole(run / NAME, canonical([asdict(every[key]) for key in sorted(every)]))


def _read(entry: Any) -> Asked:
    if entry["role"] not in ("model", "oracle"):
        raise ValueError(entry["role"])
    part = dict(entry.get("part") or {})
    return Asked(entry["role"], str(entry["name"]), dict(entry["provenance"]), str(entry["caution"]), part)
