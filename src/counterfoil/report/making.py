"""How a run's images came about: parts, settings, versions, hashes, and the command that repeats it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from counterfoil.core.nested import dotted
from counterfoil.core.spec import FmrSpec, ImagenetDSpec, LanceSpec, RunSpec, sections
from counterfoil.report.collect import part_name
from counterfoil.store import Run
from counterfoil.store.later import asked_of

PARTS = {"model": "Tested model", "generator": "Generator", "oracle": "Oracle", "data": "Data"}
FLAGS = ("model", "data", "generator", "oracle", "captioner", "rewriter", "editor", "encoder", "painter")
"""Parts that the command line has a flag for."""
_SAID = ("protocol", "size", "limit", "seed", "device", "strict")  # settings that it has one for

_UNSET = object()

_SETTINGS = {
    "guidance": "how a direction is chosen; auto: by gradient where the model has one, else by random search",
    "norm": "how the gradient is normalised",
    "unit": "what a step counts in: the generator's own scale, or absolute",
    "step": "length of a step",
    "budget": "steps at most",
    "queries": "model calls an image at most; none: budget + 1, or 20 × budget for a search without gradients",
    "stop_when_fooled": "stop at the first picture the model gets wrong",
    "control": "also take random steps of equal length",
    "mask": "the coordinates that may move; none: all of them",
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
    return [*_parts(run), *_search(run), *_sections(run), *_run(run), *_machine(run.provenance), *_later(run), *_asked(run)]


def command(run: Run) -> str:
    """The command that makes the run again; defaults are left out. Parts given as objects have no name to repeat."""
    words = ["counterfoil", "run", "--protocol", str(run.spec.get("protocol", "fmr"))]
    for role in FLAGS:
        if part_name(run, role):
            words += [f"--{role}", part_name(run, role)]
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
    return not any(part_name(run, role).startswith("object:") for role in _roles(run))


def _assigned(value: Any) -> str:
    """A value as `--set` reads it: a plain word as it is, anything else as JSON, which is also YAML."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _settings(run: Run) -> Iterator[tuple[str, Any]]:
    """What the command has to set: options of parts, parts without a flag of their own, and all that is not the default."""
    kind = _kind(run)
    usual = _unsaid(run)
    for key, value in run.spec.items():
        if key in _SAID:
            continue
        if key in _roles(run):
            if key not in FLAGS:
                yield key, part_name(run, key)
            yield from ((f"{key}.{name}", option) for name, option in _options(run, key).items())
        elif isinstance(value, Mapping) and key in sections(kind):
            unsaid = usual.get(key) or {}
            yield from ((f"{key}.{name}", each) for name, each in value.items() if unsaid.get(name, _UNSET) != each)
        elif key not in kind.model_fields or not _is_default(kind, key, value):
            yield key, [_short_part(each) for each in value] if isinstance(value, list) else value


def _unsaid(run: Run) -> dict[str, Any]:
    """What each section comes to where nothing of it is said: some defaults hang on the device and the generator."""
    kind = _kind(run)
    said = {key: value for key, value in run.spec.items() if key not in sections(kind)}
    try:
        return kind.model_validate(said).model_dump(mode="json")
    except ValidationError:  # of an older version
        return {}


def _is_default(kind: type[RunSpec], key: str, value: Any) -> bool:
    default = kind.model_fields[key].get_default(call_default_factory=True)
    return bool(value == (list(default) if isinstance(default, tuple) else default))


def _short_part(value: Any) -> Any:
    """A part in a list as people write it: its name, or a mapping with its options beside the name."""
    if isinstance(value, Mapping) and set(value) == {"name", "options"}:
        return {"name": value["name"], **value["options"]} if value["options"] else value["name"]
    return value


def _kind(run: Run) -> type[RunSpec]:
    kinds: dict[str, type[RunSpec]] = {"lance": LanceSpec, "imagenet-d": ImagenetDSpec}
    return kinds.get(str(run.spec.get("protocol", "fmr")), FmrSpec)


def _roles(run: Run) -> list[str]:
    """The keys of the specification that name a part, those a reader asks for first at the top."""
    found = [key for key, value in run.spec.items() if isinstance(value, Mapping) and set(value) == {"name", "options"}]
    return sorted(found, key=lambda role: list(PARTS).index(role) if role in PARTS else len(PARTS))


def _options(run: Run, role: str) -> Mapping[str, Any]:
    part = run.spec.get(role)
    options = part.get("options") if isinstance(part, Mapping) else None
    return options if isinstance(options, Mapping) else {}


def _parts(run: Run) -> Iterator[Fact]:
    for role in _roles(run):
        title = PARTS.get(role, role.capitalize())
        yield Fact("Parts", title, part_name(run, role))
        for name, value in _options(run, role).items():
            yield Fact("Parts", f"{title}: {name}", text(value), "option")
        for name, value in dotted(_recorded(run, role)):
            if _options(run, role).get(name) == value:
                continue
            yield Fact("Parts", f"{title}: {name}", text(value), "recorded from the part itself")


def _recorded(run: Run, role: str) -> Mapping[str, Any]:
    """What a part said of itself when the run began."""
    parts = run.provenance.get("parts")
    found = parts.get("dataset" if role == "data" else role) if isinstance(parts, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _search(run: Run) -> Iterator[Fact]:
    search = run.spec.get("search")
    if not isinstance(search, Mapping):
        return
    for name, hint in _SETTINGS.items():
        if name in search:
            yield Fact("Search", name, text(search[name]), hint)
    for name in search:
        if name not in _SETTINGS:
            yield Fact("Search", name, text(search[name]))
    space = _options(run, "generator").get("space") or _recorded(run, "generator").get("space")
    yield Fact(
        "Search",
        "space",
        text(space) if space else "the generator's default",
        "what the steps move: before quantisation, or the code",
    )
    yield Fact(
        "Search", "SA subset", "all readable images; matched FMR: the accepted ones", "the images clean accuracy is taken on"
    )


def _sections(run: Run) -> Iterator[Fact]:
    """Settings of protocols that have other groups of them, and lists of parts."""
    kind = _kind(run)
    for key, value in run.spec.items():
        if key in sections(kind) and key not in ("search", "engine") and isinstance(value, Mapping):
            fields = sections(kind)[key].model_fields
            for name, each in value.items():
                yield Fact(key.capitalize(), name, text(each), (fields[name].description or "") if name in fields else "")
        elif key not in _SAID and key not in ("force", "search", "engine", *_roles(run)):
            known = kind.model_fields.get(key)
            shown = ", ".join(text(_short_part(each)) for each in value) or "none" if isinstance(value, list) else text(value)
            yield Fact("Protocol", key, shown, (known.description or "") if known else "")


def _run(run: Run) -> Iterator[Fact]:
    for name in ("protocol", "seed", "limit", "size", "strict", "device"):
        if name in run.spec:
            yield Fact("Run", name, text(run.spec[name]))
    engine = run.spec.get("engine")
    for name, value in (engine if isinstance(engine, Mapping) else {}).items():
        yield Fact("Run", f"engine: {name}", text(value))
    for name, hint in (("images", "images in the data, after the limit"), ("size", "side of the pictures in pixels")):
        if name in run.provenance:
            yield Fact("Run", f"resolved {name}", text(run.provenance[name]), hint)
    for name, hint in (("data", "hash over image ids and labels"), ("code", "hash over the program's files")):
        if name in run.provenance:
            yield Fact("Run", f"{name} hash", text(run.provenance[name]), hint)
    functions = run.provenance.get("functions")
    for name, code in (functions if isinstance(functions, Mapping) else {}).items():
        yield Fact("Run", f"{name} hash", text(code), "hash over the file of this function")


def _machine(provenance: Mapping[str, Any]) -> Iterator[Fact]:
    for group, title in (("versions", "Versions"), ("hardware", "Hardware")):
        values = provenance.get(group)
        for name, value in dotted(values if isinstance(values, Mapping) else {}):
            yield Fact(title, name, text(value))


def _later(run: Run) -> Iterator[Fact]:
    """What was different when the run was resumed."""
    began = dict(dotted(run.provenance))
    for sitting, provenance in enumerate(run.resumed, start=1):
        for name, value in dotted(provenance):
            if began.get(name) != value:
                yield Fact("Resumed", f"sitting {sitting + 1}: {name}", f"{text(value)} (began with {text(began.get(name))})")


def _asked(run: Run) -> Iterator[Fact]:
    """What models and oracles that were asked later said of themselves."""
    for part in asked_of(run.path):
        yield Fact("Asked later", part.role.capitalize(), part.name)
        for name, value in part.provenance.items():
            yield Fact("Asked later", f"{part.name}: {name}", text(value), "recorded from the part itself")


def text(value: Any) -> str:
    """A value for people: words for truth and absence, JSON for what has a structure."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
