"""A run's specification: everything that decides its numbers, as plain data that can be written down and read back."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from counterfoil.errors import BadSpec


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PartSpec(_Strict):
    """A part by name, with its options: `timm:resnet50`, or `{name: clip:…, templates: [...]}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _part(value: Any) -> Any:
    """Accepts a bare name, or a mapping whose keys beside `name` are the options."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and "options" not in value:
        return {"name": value.get("name"), "options": {key: item for key, item in value.items() if key != "name"}}
    return value


def _data(value: Any) -> Any:
    """Like a part, and a bare path is a folder of images."""
    part = _part(value)
    if isinstance(part, Mapping) and isinstance(part.get("name"), str) and ":" not in part["name"]:
        return {**part, "name": f"folder:{part['name']}"}
    return part


Part = Annotated[PartSpec, BeforeValidator(_part)]
Data = Annotated[PartSpec, BeforeValidator(_data)]


class SearchSpec(_Strict):
    """How the search climbs. The paper leaves several of these open; reports print the ones used."""

    budget: int = Field(10, ge=0, description="steps at most")
    step: float = Field(0.03, gt=0, description="length of a step")
    unit: Literal["scale", "absolute"] = Field("scale", description="whether a step counts in the generator's own scale")
    norm: Literal["sign", "l2", "raw"] = Field("l2", description="how the gradient is normalised")
    guidance: Literal["auto", "gradient", "search", "random"] = Field(
        "auto", description="gradient ascent, random search, or random steps; auto: gradient where the model has one"
    )
    queries: int | None = Field(
        None, ge=1, description="model calls an image at most; default budget + 1, or 20 × budget for search"
    )
    stop_when_fooled: bool = Field(False, description="stop at the first picture the model gets wrong")
    control: bool = Field(True, description="also take random steps of equal length, as a control")


class EngineSpec(_Strict):
    """How the work is laid out on the machine. On a CPU in float32 none of this changes a number."""

    slots: int = Field(32, ge=1, description="images under way at a time")
    tile: int | None = Field(None, ge=1, description="images in one call of a part; default 8 on a CPU, all slots on a GPU")
    precision: Literal["float32", "bfloat16"] = "float32"
    part_images: int = Field(64, ge=1, description="images in one part of the store: what a kill can lose at most")


class RunSpec(_Strict):
    """Everything that decides a run's numbers."""

    protocol: Literal["fmr"] = "fmr"
    model: Part
    data: Data
    generator: Part
    oracle: Part
    size: int | None = Field(None, ge=8, le=4096, description="side of the pictures; default the generator's, then the model's")
    limit: int | None = Field(None, ge=1, description="images at most, taken evenly over the data")
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = "cpu"
    strict: bool = Field(False, description="stop at the first unreadable picture instead of skipping it")
    force: bool = Field(False, description="let an oracle that shares weights with the model judge it all the same")
    search: SearchSpec = Field(default_factory=SearchSpec)
    engine: EngineSpec = Field(default_factory=EngineSpec)


def parse(values: Mapping[str, Any]) -> RunSpec:
    """A specification from plain values; every complaint is one line that names the key."""
    try:
        return RunSpec.model_validate(values)
    except ValidationError as error:
        raise BadSpec("; ".join(_complaint(item) for item in error.errors())) from None


def part(name: str, assignments: Sequence[str] | None = None) -> PartSpec:
    """A part by name with options given as `key=value`."""
    options: dict[str, Any] = {}
    for assignment in assignments or ():
        key, value = _assigned(assignment)
        options[key] = value
    return PartSpec(name=name, options=options)


def read(path: Path) -> dict[str, Any]:
    """The plain values of a YAML file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSpec(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSpec(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise BadSpec(f"{path}: a specification is a mapping of keys to values, got {type(values).__name__}")
    return values


def override(values: dict[str, Any], assignment: str) -> None:
    """Apply `key=value`, as in `search.budget=10`; a key that stands in one place only needs no section."""
    key, value = _assigned(assignment)
    *sections, leaf = key.split(".")
    if not sections and leaf not in RunSpec.model_fields:
        sections = _sections_with(leaf)
    target = values
    for section in sections:
        inner = target.setdefault(section, {})
        if isinstance(inner, str):  # a bare part name: `--set generator.space=code` gives it an option
            inner = target[section] = {"name": inner}
        target = inner
    target[leaf] = value


def _assigned(assignment: str) -> tuple[str, Any]:
    key, equals, text = assignment.partition("=")
    if not equals:
        raise BadSpec(f"--set {assignment!r}: write KEY=VALUE, as in --set budget=10")
    try:
        return key.strip(), yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadSpec(f"--set {assignment!r}: the value is not YAML; put quotes around it") from None


def _sections_with(leaf: str) -> list[str]:
    homes = {name: section for section, kind in _SECTIONS.items() for name in kind.model_fields}
    if leaf in homes:
        return [homes[leaf]]
    raise BadSpec(f"--set {leaf}: {_unknown(leaf, [*RunSpec.model_fields, *homes])}")


_SECTIONS: dict[str, type[BaseModel]] = {"search": SearchSpec, "engine": EngineSpec}


def _complaint(item: Any) -> str:
    where = ".".join(str(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        section = _SECTIONS.get(str(item["loc"][0])) if len(item["loc"]) > 1 else RunSpec
        return _unknown(where, list(section.model_fields) if section else [])
    if item["type"] == "missing":
        return f"no {where} given; name one, as in --{where} NAME or '{where}: NAME' in the file"
    return f"{where}: {item['msg'].lower()}, got {item['input']!r}"


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"
