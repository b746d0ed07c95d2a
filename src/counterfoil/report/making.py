"""How a run's images came about: parts, settings, versions, hashes, and the command that repeats it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from counterfoil.report.collect import part_name
from counterfoil.spec import EngineSpec, RunSpec, SearchSpec
from counterfoil.store import Run

PARTS = {"model": "Tested model", "generator": "Generator", "oracle": "Oracle", "data": "Data"}

_SETTINGS = {
    "guidance": "how a direction is chosen; auto: by gradient where the model has one, else by random search",
    "norm": "how the gradient is normalised",
    "unit": "what a step counts in: the generator's own scale, or absolute",
    "step": "length of a step",
    "budget": "steps at most",
    "queries": "model calls an image at most; none: budget + 1, or 20 × budget for a search without gradients",
    "stop_when_fooled": "stop at the first picture the model gets wrong",
    "control": "also take random steps of equal length",
}
"""The settings that the paper leaves open; a report always prints them."""


@dataclass(frozen=True)
class Fact:
    """One line of provenance."""

    group: str
    name: str
    value: str
    hint: str = ""


def facts(run: Run) -> list[Fact]:
    """Everything known of how the run was made, group by group."""
    return [*_parts(run), *_search(run), *_run(run), *_machine(run.provenance), *_later(run)]


def command(run: Run) -> str:
    """The command that makes the run again; defaults are left out. Parts given as objects have no name to repeat."""
    words = ["counterfoil", "run"]
    for key in ("protocol", "model", "data", "generator", "oracle"):
        if key in run.spec:
            words += [f"--{key}", str(run.spec[key]) if key == "protocol" else part_name(run, key)]
    for key in ("size", "limit", "seed", "device"):
        if run.spec.get(key) not in (None, RunSpec.model_fields[key].default):
            words += [f"--{key}", str(run.spec[key])]
    if run.spec.get("strict"):
        words.append("--strict")
    for key, value in _settings(run):
        words += ["--set", f"{key}={_assigned(value)}"]
    return shlex.join(words)


def repeatable(run: Run) -> bool:
    """Whether every part has a name that the command line finds."""
    return not any(part_name(run, role).startswith("object:") for role in PARTS)


def _assigned(value: Any) -> str:
    """A value as `--set` reads it: a plain word as it is, anything else as JSON, which is also YAML."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _settings(run: Run) -> Iterator[tuple[str, Any]]:
    for role in PARTS:
        for name, value in _options(run, role).items():
            yield f"{role}.{name}", value
    for section, kind in (("search", SearchSpec), ("engine", EngineSpec)):
        values = run.spec.get(section)
        for name, value in (values if isinstance(values, Mapping) else {}).items():
            known = kind.model_fields.get(name)
            if known is None or value != known.default:
                yield f"{section}.{name}", value


def _options(run: Run, role: str) -> Mapping[str, Any]:
    part = run.spec.get(role)
    options = part.get("options") if isinstance(part, Mapping) else None
    return options if isinstance(options, Mapping) else {}


def _parts(run: Run) -> Iterator[Fact]:
    for role, title in PARTS.items():
        if not part_name(run, role):
            continue
        yield Fact("Parts", title, part_name(run, role))
        for name, value in _options(run, role).items():
            yield Fact("Parts", f"{title}: {name}", _text(value), "option")
        for name, value in _flat(_recorded(run, role)):
            if _options(run, role).get(name) == value:
                continue
            yield Fact("Parts", f"{title}: {name}", _text(value), "recorded from the part itself")


def _recorded(run: Run, role: str) -> Mapping[str, Any]:
    """What a part said of itself when the run began."""
    parts = run.provenance.get("parts")
    found = parts.get("dataset" if role == "data" else role) if isinstance(parts, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _search(run: Run) -> Iterator[Fact]:
    search = run.spec.get("search")
    search = search if isinstance(search, Mapping) else {}
    for name, hint in _SETTINGS.items():
        if name in search:
            yield Fact("Search", name, _text(search[name]), hint)
    for name in search:
        if name not in _SETTINGS:
            yield Fact("Search", name, _text(search[name]))
    space = _options(run, "generator").get("space") or _recorded(run, "generator").get("space")
    yield Fact(
        "Search",
        "space",
        _text(space) if space else "the generator's default",
        "what the steps move: before quantisation, or the code",
    )
    yield Fact(
        "Search", "SA subset", "all readable images; matched FMR: the accepted ones", "the images clean accuracy is taken on"
    )


def _run(run: Run) -> Iterator[Fact]:
    for name in ("protocol", "seed", "limit", "size", "strict", "device"):
        if name in run.spec:
            yield Fact("Run", name, _text(run.spec[name]))
    engine = run.spec.get("engine")
    for name, value in (engine if isinstance(engine, Mapping) else {}).items():
        yield Fact("Run", f"engine: {name}", _text(value))
    for name, hint in (("images", "images in the data, after the limit"), ("size", "side of the pictures in pixels")):
        if name in run.provenance:
            yield Fact("Run", f"resolved {name}", _text(run.provenance[name]), hint)
    for name, hint in (("data", "hash over image ids and labels"), ("code", "hash over the program's files")):
        if name in run.provenance:
            yield Fact("Run", f"{name} hash", _text(run.provenance[name]), hint)


def _machine(provenance: Mapping[str, Any]) -> Iterator[Fact]:
    for group, title in (("versions", "Versions"), ("hardware", "Hardware")):
        values = provenance.get(group)
        for name, value in _flat(values if isinstance(values, Mapping) else {}):
            yield Fact(title, name, _text(value))


def _later(run: Run) -> Iterator[Fact]:
    """What was different when the run was resumed."""
    began = dict(_flat(run.provenance))
    for sitting, provenance in enumerate(run.resumed, start=1):
        for name, value in _flat(provenance):
            if began.get(name) != value:
                yield Fact("Resumed", f"sitting {sitting + 1}: {name}", f"{_text(value)} (began with {_text(began.get(name))})")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    """A value for people: words for truth and absence, JSON for what has a structure."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
