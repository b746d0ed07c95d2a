"""A run's specification: everything that decides its numbers, as plain data that can be written down and read back.

What all protocols share is here, with the settings that lower layers read; each protocol has a class of its own, which
`protocol` in the values selects (`counterfoil.protocols.parse`). Every complaint is one line that names the key.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict

from counterfoil.core.errors import BadData, BadSpec, one_line
from counterfoil.core.tables import parse_yaml, read_text

LONGEST = 2**20  # bytes of a specification
MOST_IMAGES = 65_536
"""Images that may be in progress, in a batch or in a chunk at a time: far more than a machine holds."""


class Strict(BaseModel):
    """A frozen set of keys; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PartSpec(Strict):
    """A part by name, with its options: `timm:resnet50`, or `{name: clip:…, templates: [...]}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def as_part(value: Any) -> Any:
    """Accept a bare name, a mapping whose keys other than `name` are the options, or what a run keeps: `name` and `options`."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and set(value) != {"name", "options"}:
        return {"name": value.get("name"), "options": {key: item for key, item in value.items() if key != "name"}}
    return value


def _data(value: Any) -> Any:
    """Like a part, and a bare path is a folder of images; `photos/` and `./photos` are the folder `photos`."""
    part = as_part(value)
    if not isinstance(part, Mapping) or not isinstance(part.get("name"), str):
        return part
    kind, _, place = part["name"].rpartition(":")
    return {**part, "name": f"folder:{Path(place) if place else ''}"} if kind in ("", "folder") else part


Part = Annotated[PartSpec, BeforeValidator(as_part)]
Data = Annotated[PartSpec, BeforeValidator(_data)]


Precision = Literal["float32", "bf16"]


def _short(value: Any) -> Any:
    return "bf16" if value == "bfloat16" else value


SAME: JsonDict = {"changes_numbers": False}
"""On a field that lays out the work, or ends it, and changes no number: a resumed run may change it."""


def _at_a_time(default: int | None, description: str, *, most: int = MOST_IMAGES) -> Any:
    return Field(default, ge=1, le=most, description=description, json_schema_extra=SAME)


class BatchSpec(Strict):
    """Layout of the work on the machine. On a CPU in float32 none of this changes a number."""

    batch_size: int | None = _at_a_time(None, "images in one call of a part; default 8 on a CPU; on a GPU 32, or what fits")
    chunk_images: int = _at_a_time(64, "images in one part of the store: what a kill can lose at most, with those in progress")


class EngineSpec(BatchSpec):
    """Layout of the work of a search."""

    slots: int | None = _at_a_time(None, "images in progress at a time; default 32 on a CPU, two batches on a GPU")
    precision: Annotated[Precision, BeforeValidator(_short)] = Field(
        "float32",
        description="what parts compute in; losses, distances, steps: float32 always; by default bf16 on a GPU that has it",
    )
    compile: bool | None = Field(None, description="compile the parts; by default on a GPU below float32, for long runs")


class StagesSpec(BatchSpec):
    """Layout of the work of a staged protocol."""

    batch: int = _at_a_time(16, "items handed to a stage at a time: what a kill can lose at most")
    workers: int = _at_a_time(1, "threads for stages that wait for others, such as a remote rewriter", most=64)


FILLED_IN = ("search.step",)
"""Keys that assembling a run fills in where they are not given: a run that leaves them open agrees with any stored value."""


@cache
def _presets_in(path: Path) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = parse_yaml(read_text(path), what=path.name)
    return found


class RunSpec(Strict):
    """Fields that every protocol's specification has."""

    PRESETS: ClassVar[Path | None] = None
    """A file with each preset's purpose, the parts it needs in addition to a model and data, and its values."""

    protocol: str
    size: int | None = Field(None, ge=8, le=4096, description="side of the images; default what the parts work at")
    limit: int | None = Field(None, ge=1, description="images at most, taken evenly over the data")
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = Field("cpu", json_schema_extra=SAME)
    strict: bool = Field(False, description="stop at the first unreadable image instead of skipping it", json_schema_extra=SAME)
    force: bool = Field(False, description="let an oracle that shares weights with the model judge it all the same")

    @property
    def subject(self) -> str:
        return self.protocol

    def parts(self) -> Iterator[tuple[str, str, PartSpec]]:
        """The parts it names, but for the data: the key of each, which is its name where a field has several, and its role."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            role = "model" if key in ("others", "surrogates") else key.removesuffix("s")
            if isinstance(value, PartSpec) and key != "data":
                yield key, role, value
            elif isinstance(value, tuple):
                yield from ((each.name, role, each) for each in value if isinstance(each, PartSpec))

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        return _presets_in(cls.PRESETS) if cls.PRESETS else {}

    @classmethod
    def from_preset(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, with what their preset says of keys, and of keys of sections, that are not given."""
        filled, name = dict(values), str(values.get("preset") or cls.model_fields["preset"].default)
        for key, settings in cls.presets().get(name, {}).get("values", {}).items():
            given = filled.get(key)
            if given is None:
                filled[key] = settings
            elif isinstance(given, dict) and isinstance(settings, Mapping) and "name" not in settings:
                filled[key] = {**settings, **given}
        return filled


class StagedSpec(RunSpec):
    """Fields of the specification of a protocol that runs in stages."""

    engine: StagesSpec = Field(default_factory=StagesSpec)


FREE = tuple(
    dict.fromkeys(
        prefix + name
        for kind, prefix in ((RunSpec, ""), (EngineSpec, "engine."), (StagesSpec, "engine."))
        for name, each in kind.model_fields.items()
        if each.json_schema_extra == SAME
    )
)
"""Keys of a specification whose fields say that they change no number."""


class PlainSpec(RunSpec):
    """Fields of the specification of a protocol that makes images in one step."""

    model: Part
    data: Data
    oracle: Part | None = Field(None, description="only images in which it sees the class count; default all")
    engine: BatchSpec = Field(default_factory=BatchSpec)

    @property
    def subject(self) -> str:
        return self.model.name


Control = Literal["none", "path", "distance"]


def _control(value: Any) -> Any:
    """Accept yes and no as well: a control at matched distance, and none."""
    return {True: "distance", False: "none"}.get(value, value) if isinstance(value, bool) else value


class SearchSpec(Strict):
    """Settings of the search. The paper leaves several of these open; reports print the ones used."""

    budget: int = Field(10, ge=0, le=100_000, description="steps at most")
    step: float | None = Field(None, gt=0, description="length of a step; the generator's own unless given")
    unit: Literal["scale", "absolute"] = Field("scale", description="whether a step counts in the generator's own scale")
    norm: Literal["sign", "l2", "raw"] = Field("l2", description="how the gradient is normalised")
    guidance: Literal["auto", "gradient", "search", "random"] = Field(
        "auto", description="gradient ascent, random search, or random steps; auto: gradient where the model has one"
    )
    queries: int | None = Field(
        None, ge=1, le=10_000_000, description="model calls an image at most; default budget + 1, or 20 × budget for search"
    )
    accept: Literal["label", "agreement"] = Field(
        "label", description="what the oracle must say of an image: its label, or what it says of the source image"
    )
    stop_when_fooled: bool = Field(False, description="stop at the first image the model gets wrong")
    mask: str | None = Field(None, description="a file with the coordinates that may move; 'study sparse' fits one")
    control: Annotated[Control, BeforeValidator(_control)] = Field(
        "distance",
        description="random arm: distance, along one line as far as the guided climb; path, as many steps of equal length",
    )


class MiningSpec(Strict):
    """Rules for which painted images are hard enough to keep."""

    misses: Literal["all"] | int = Field("all", description="surrogates that must miss an image: all, or a number")
    confidence: float = Field(0.0, ge=0, le=1, description="a miss counts if the wrong answer has at least this probability")
    truth: float = Field(1.0, ge=0, le=1, description="a miss counts if the right answer has at most this probability")
    object_check: bool = Field(True, description="keep only what the oracle accepts as showing the object, or leaves open")
    duplicates: int | None = Field(
        4, ge=0, le=64, description="bits in which the hashes of two images of an object must differ by more; null for no check"
    )
    per_class: int | None = Field(None, ge=1, description="images of an object at most")
    per_nuisance: int | None = Field(None, ge=1, description="images of an object and a kind of nuisance at most")


Kinds = Callable[[], Mapping[str, type[RunSpec]]]


def parse(values: Mapping[str, Any], kind: type[BaseModel], *, kinds: Kinds = dict) -> Any:
    """Read a specification of one kind from plain values; `kinds` are those of all protocols, for a hint about another's key."""
    known = sections(kind)
    try:  # a section with nothing in it has no settings
        return kind.model_validate({key: {} if value is None and key in known else value for key, value in values.items()})
    except ValidationError as error:
        items = error.errors()
        missing = [".".join(map(str, item["loc"])) for item in items if item["type"] == "missing"]
        lines = [_complaint(item, kind, kinds) for item in items if item["type"] != "missing"]
        if missing:
            lines.insert(
                0,
                f"no {', '.join(missing)} given; name {'each' if missing[1:] else 'one'}, as in --{missing[0]} NAME or "
                f"'{missing[0]}: NAME' in the file; 'counterfoil list' shows what there is",
            )
        raise BadSpec("; ".join(lines)) from None


def part(name: str, assignments: Sequence[str] | None = None) -> PartSpec:
    """A part by name with options given as `key=value`."""
    return PartSpec(name=name, options=dict(map(_assignment, assignments or ())))


def read(path: Path) -> dict[str, Any]:
    try:
        values = parse_yaml(read_text(path, limit=LONGEST), what=str(path))
    except BadData as error:
        raise BadSpec(str(error)) from None
    if not isinstance(values, dict):
        raise BadSpec(f"{path}: a specification is a mapping of keys to values, got {type(values).__name__}")
    return values


def override(values: dict[str, Any], assignment: str, kind: type[RunSpec]) -> None:
    """Apply `key=value`, as in `search.budget=10`; a key that stands in one place only needs no section."""
    key, value = _assignment(assignment)
    *route, leaf = key.split(".")
    if not route and leaf not in kind.model_fields:
        homes = _homes(kind)
        if leaf not in homes:
            raise BadSpec(f"--set {leaf}: {_unknown(leaf, [*kind.model_fields, *homes])}")
        route = [homes[leaf]]
    target = values
    for section in route:
        inner = target[section] = {} if target.get(section) is None else target[section]
        if isinstance(inner, str):  # a bare part name: `--set generator.space=code` gives it an option
            inner = target[section] = {"name": inner}
        if not isinstance(inner, dict):
            raise BadSpec(f"--set {key}: {section} is {inner!r}, which has no keys")
        target = inner
    if set(target) == {"name", "options"} and leaf not in target:  # a part as a run keeps it and --dry-run prints it
        target = target["options"]
    target[leaf] = value


def sections(kind: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The groups of settings of a protocol's specification: `search`, `engine`, …"""
    kinds = {name: each.annotation for name, each in kind.model_fields.items()}
    return {
        name: found
        for name, found in kinds.items()
        if isinstance(found, type) and issubclass(found, Strict) and not issubclass(found, PartSpec)
    }


def _assignment(assignment: str) -> tuple[str, Any]:
    key, equals, text = assignment.partition("=")
    if not equals:
        raise BadSpec(f"--set {assignment!r}: write KEY=VALUE, as in --set budget=10")
    try:
        return key.strip(), parse_yaml(text, what=f"--set {one_line(assignment, 60)!r}")
    except BadData as error:
        raise BadSpec(f"{error}; put quotes around a value that is text") from None


def _homes(kind: type[BaseModel]) -> dict[str, str]:
    return {name: section for section, settings in sections(kind).items() for name in settings.model_fields}


def _complaint(item: Any, kind: type[BaseModel], kinds: Kinds) -> str:
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


def default_folder(spec: RunSpec) -> Path:
    """A run directory named by everything that may not differ when the run is resumed, so that the same command finds it."""
    deciding = {key: value for key, value in by_dotted_name(spec.model_dump(mode="json")) if key not in FREE}
    code = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.subject).strip("-")[-40:]
    return Path("runs") / f"{spec.protocol}-{name}-{code}"


def by_dotted_name(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping itself, by its dotted name, as in `search.step`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from by_dotted_name(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
