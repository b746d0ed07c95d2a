"""Provenance: how a run was made, as facts; in what runs differ; and the cautions that hold for every protocol."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic import BaseModel

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.spec import FREE, RunSpec, by_dotted_name, sections
from counterfoil.metrics.tables import Column, Table, amount
from counterfoil.report.page import Block, Caution, Code, Fold
from counterfoil.store import Run
from counterfoil.store.later import asked_of

FEW_IMAGES = 100
PARTS = {"model": "Tested model", "generator": "Generator", "oracle": "Oracle", "data": "Data"}
RUN = ("protocol", "seed", "limit", "size", "strict", "device")  # settings of any run
MADE = (
    ("images", "resolved images", "images in the data, after the limit"),
    ("size", "resolved size", "side of the images in pixels"),
    ("data", "data hash", "hash over image ids and labels"), ("code", "code hash", "hash over the program's files"),
)  # fmt: skip


class Fact(NamedTuple):
    """One line of provenance."""

    group: str
    name: str
    value: str
    hint: str = ""


def facts(run: Run, kind: type[RunSpec], name: Callable[[str], str] = short_name) -> Iterator[Fact]:
    """Everything known of how the run was made, group by group; `kind` is the protocol's specification, for its hints."""
    itself = "recorded from the part itself"
    spec, made = run.spec, run.provenance
    roles = sorted(_roles(run), key=lambda role: [*PARTS, role].index(role))
    for role in roles:
        title, part = PARTS.get(role, role.capitalize()), spec[role]
        yield Fact("Parts", title, short_name(part_name(part)))
        yield from (Fact("Parts", f"{title}: {key}", text(value), "option") for key, value in part["options"].items())
        for key, value in by_dotted_name(_mapping(made, "parts", "dataset" if role == "data" else role)):
            if part["options"].get(key) != value:
                yield Fact("Parts", f"{title}: {key}", text(value), itself)
    for key, value in spec.items():
        if key in sections(kind) and key != "engine" and isinstance(value, Mapping):
            yield from (Fact(key.capitalize(), *each) for each in _with_hints(sections(kind)[key], value))
        elif key not in (*RUN, "force", "engine", *roles):
            several = isinstance(value, list)
            shown = [", ".join(short_name(part_name(each)) or text(each) for each in value) or "none"] if several else [value]
            yield from (Fact("Protocol", *each) for each in _with_hints(kind, {key: shown[0]}))
    yield from (Fact("Run", key, text(spec[key])) for key in RUN if key in spec)
    yield from (Fact("Run", f"engine: {key}", text(value)) for key, value in _mapping(spec, "engine").items())
    for key, title, hint in MADE:
        if key in made:
            yield Fact("Run", title, text(made[key]), hint)
    for key, value in _mapping(made, "functions").items():
        yield Fact("Run", f"{short_name(key)} hash", text(value), "hash over the file of this function")
    for group in ("versions", "hardware"):
        yield from (Fact(group.capitalize(), key, text(value)) for key, value in by_dotted_name(_mapping(made, group)))
    began = dict(by_dotted_name(made))
    for session, again in enumerate(run.resumed, start=2):
        for key, value in by_dotted_name(again):
            if began.get(key) != value:
                yield Fact("Resumed", f"session {session}: {key}", f"{text(value)} (began with {text(began.get(key))})")
    for each in asked_of(run.path):
        yield Fact("Asked later", each.role.capitalize(), name(each.name))
        told = each.provenance.items()
        yield from (Fact("Asked later", f"{name(each.name)}: {key}", text(value), itself) for key, value in told)


def how_it_was_made(run: Run, kind: type[RunSpec], *, name: Callable[[str], str] = short_name) -> list[Block]:
    """Facts by group, and what makes the run again."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts(run, kind, name):
        groups.setdefault(fact.group, []).append(fact)
    columns = [Column("", "text"), Column("", "text"), Column("", "text", wide=True)]
    blocks: list[Block] = [
        Fold(title, [Table(columns, [[fact.name, fact.value, fact.hint] for fact in some])]) for title, some in groups.items()
    ]
    again: list[Block] = ["The specification is among the downloads; this command makes the run again:"]
    again.append(Code("counterfoil run spec.yaml"))
    if not reproducible(run):
        again.append(
            "Some parts were given as Python objects, which no file can name; use counterfoil.evaluate with the same objects."
        )
    return [*blocks, *again]


def reproducible(run: Run) -> bool:
    """Tell whether every part has a name that the command line finds."""
    return not any(part_name(run.spec[role]).startswith("object:") for role in _roles(run))


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for every run: its model, with its folder or its place where that is not enough to tell runs apart."""
    whole = [
        part_name(run.spec.get("model") or run.spec.get("painter") or run.spec.get("data")) or "a model without a name"
        for run in runs
    ]
    names = [short_name(name) for name in whole]
    folders = [run.path.resolve().name for run in runs]
    for extra in (folders, [f"run {place}" for place in range(1, len(runs) + 1)]):
        twice = {name for name in names if names.count(name) > 1}
        names = [f"{name} · {more}" if name in twice else name for name, more in zip(names, extra, strict=True)]
    return names


def together(found: Sequence[tuple[str, Run, Sequence[Caution]]], *, each_is: str = "run") -> list[Caution]:
    """Cautions about all runs by their labels, as one list: whether they may be compared, then each caution once, with whose."""
    about: dict[Caution, list[str]] = {}
    for label, _, own in found:
        for each in own:
            about.setdefault(each, []).append(label)
    ordered = sorted(about.items(), key=lambda item: ("stop", "care", "note").index(item[0].kind))
    return [
        *_comparable(list({run.path: run for _, run, _ in found}.values())),
        *(
            Caution(each.kind, f"{f'Every {each_is}' if len(names) == len(found) else ', '.join(names)}: {each.text}")
            for each, names in ordered
        ),
    ]


def _comparable(runs: Sequence[Run]) -> list[Caution]:
    unlike = [*differences(runs), *differences_in_data(runs), *differences_in_sources(runs)]
    if not unlike:
        return []
    more = f" and {len(unlike) - 6} more" if len(unlike) > 6 else ""
    listed = "; ".join(unlike[:6])
    return [
        Caution("care", f"These runs differ in more than the model, so the numbers don't compare models alone: {listed}{more}.")
    ]


def about_parts(run: Run, *, name: Callable[[str], str] = short_name, models: Collection[str] | None = None) -> list[Caution]:
    """Name judges of a run that are not independent: its own oracle, where that was forced, and parts that were asked later.

    Of models that were asked later, those of `models`, or all.
    """
    told = run.provenance.get("caution")
    texts = [f"{told[:1].upper()}{told[1:]}."] if told else []
    for each in asked_of(run.path):
        if each.caution and (each.role == "oracle" or models is None or each.name in models):
            texts.append(f"The {each.role} {name(each.name)}, which was asked later, is {each.caution}.")
    return [Caution("care", text) for text in texts]


def about_images(number: int, text: str, *, missing: int = 0) -> list[Caution]:
    """Cautions about a run's images: that they are few, if so, in this sentence, and that some could not be shown."""
    found = []
    if number < FEW_IMAGES:
        found.append(
            Caution("care", f"{text}: fewer than {FEW_IMAGES}, so intervals are wide, and numbers for parts of them say little.")
        )
    if missing:
        found.append(Caution("note", f"{amount(missing, 'image')} could not be shown: missing or damaged."))
    return found


def _roles(run: Run) -> list[str]:
    """The keys of the specification that name a part."""
    return [key for key, value in run.spec.items() if isinstance(value, Mapping) and set(value) == {"name", "options"}]


def _mapping(values: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A mapping inside others; empty where there is none."""
    for key in keys:
        values = found if isinstance(found := values.get(key), Mapping) else {}
    return values


def _with_hints(kind: type[BaseModel], values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Settings with what each says of itself."""
    for key, value in values.items():
        known = kind.model_fields.get(key)
        yield key, text(value), (known.description if known else None) or ""


def text(value: Any) -> str:
    """A value for people: words for truth and absence, JSON for what has a structure, and no folders of this machine."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f"…/{PurePath(value).name}" if value.startswith(("/", "~")) and "/" in value[1:] else value
    return json.dumps(value, ensure_ascii=False)


_FREE = ("model", "models", "others", "chats", "limit", "realism", *FREE)
"""Keys that may differ: the model, how many images (only those in common are compared), and what changes no number."""

_SHAPING = ("generator", "oracle", "captioner", "rewriter", "editor", "encoder", "painter")
"""The parts that decide which images there are and which of them count. Surrogates do too, by their own names."""

SHOWN = 40  # characters of a value


def differences(runs: Sequence[Run]) -> list[str]:
    """Settings that differ between runs other than the model, as `search.step (0.01 / 0.1)`; empty for the same test.

    The same ids and labels are the same data, wherever they lie; `check_sources` looks at the pixels.
    """
    hashes = {run.provenance.get("data") for run in runs}
    moved = {"data.name"} if len(hashes) == 1 and None not in hashes else set()
    return _unlike([{key: value for key, value in test_settings(run).items() if key not in moved} for run in runs])


def differences_in_data(runs: Sequence[Run]) -> list[str]:
    """Differences in which images there are; they matter to numbers that are not taken over those in common."""
    return _unlike([{"limit": run.spec.get("limit"), "data hash": run.provenance.get("data")} for run in runs])


def _unlike(every: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for key in dict.fromkeys(key for values in every for key in values):
        values = list(dict.fromkeys(_text(each.get(key)) for each in every))
        if len(values) > 1:
            found.append(f"{key} ({' / '.join(_shorten(values))})")
    return found


def check_sources(runs: Sequence[Run]) -> str:
    """Nothing if the runs saw the same source images; else how many differ. UsageError if the ids mean other images."""
    other, known = _other_sources(runs)
    sizes = {run.provenance.get("size") for run in runs}
    if known and other == known and len(sizes) == 1:
        paths = ", ".join(str(run.path) for run in runs)
        raise UsageError(f"{paths}: the same image ids stand for other images; compare runs over the same data")
    return f"pixels of {other} of {known} source images" if other else ""


def differences_in_sources(runs: Sequence[Run]) -> list[str]:
    """Count the source images of equal ids whose pixels differ."""
    other, known = _other_sources(runs)
    return [f"pixels of {other} of {known} source images"] if other else []


def _other_sources(runs: Sequence[Run]) -> tuple[int, int]:
    """Of how many ids that all runs have the images differ, and of how many that is known."""
    hashes = [_source_hashes(run) for run in runs]
    known = [image_id for image_id in hashes[0] if all(image_id in each for each in hashes)]
    return sum(len({each[image_id] for each in hashes}) > 1 for image_id in known), len(known)


def test_settings(run: Run) -> dict[str, Any]:
    """Everything that makes it the test it is, by dotted key."""
    spec = {
        key: value
        for key, value in by_dotted_name(run.spec)
        if not any(key == each or key.startswith(f"{each}.") for each in _FREE)
    }
    return {**spec, **_hashes(run), "image size": run.provenance.get("size"), "classes": list(run.classes)}


def test_identity(run: Run) -> str:
    """The same for runs that put models to the same test; which models those are, and which images, is no part of it."""
    told = {key: value for key, value in test_settings(run).items() if value is not None}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _hashes(run: Run) -> dict[str, str]:
    """Every hash that the parts which shape the test give of themselves: of weights, word lists, captions, answers."""
    parts = run.provenance.get("parts", {})
    surrogates = [part["name"] for part in run.spec.get("surrogates") or ()]
    named = {**{role: role for role in _SHAPING}, **{f"surrogate {name}": name for name in surrogates}}
    told = ((f"{role} {key}", value) for role, name in named.items() for key, value in parts.get(name, {}).items())
    return {key: value for key, value in told if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)}


def _source_hashes(run: Run) -> dict[str, str]:
    """The hash of each source image by its id; what was painted has none, what was read from a set has."""
    found = {}
    for batch in run.table("trials", columns=["image_id", "arm", "source", "source_sha256", "image_sha256"]):
        for image_id, arm, source, digest, own in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if arm == "painted" and source:
                digest = own
            if arm in ("guided", "source", "painted") and digest:
                found[image_id] = digest
    return found


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shorten(texts: Sequence[str]) -> list[str]:
    """Long ones from where they begin to differ on."""
    if max(map(len, texts)) <= SHOWN:
        return list(texts)
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    start = max(0, sum(1 for _ in same) - SHOWN // 2)
    return [f"{'…' if start else ''}{text[start : start + SHOWN]}{'…' if len(text) > start + SHOWN else ''}" for text in texts]
