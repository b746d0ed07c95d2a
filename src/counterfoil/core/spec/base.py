"""What the specifications of all protocols share: parts by name, and how the work is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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


def _part(value: Any) -> Any:
    """Accepts a bare name, a mapping whose keys beside `name` are the options, or what a run keeps: `name` and `options`."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and set(value) != {"name", "options"}:
        return {"name": value.get("name"), "options": {key: item for key, item in value.items() if key != "name"}}
    return value


def _data(value: Any) -> Any:
    """Like a part, and a bare path is a folder of images; `photos/` and `./photos` are the folder `photos`."""
    part = _part(value)
    if not isinstance(part, Mapping) or not isinstance(part.get("name"), str):
        return part
    kind, _, place = part["name"].rpartition(":")
    return {**part, "name": f"folder:{Path(place) if place else ''}"} if kind in ("", "folder") else part


Part = Annotated[PartSpec, BeforeValidator(_part)]
Data = Annotated[PartSpec, BeforeValidator(_data)]


Precision = Literal["float32", "bf16"]


def _short(value: Any) -> Any:
    return "bf16" if value == "bfloat16" else value


class EngineSpec(Strict):
    """How the work is laid out on the machine. On a CPU in float32 none of this changes a number."""

    slots: int | None = Field(
        None, ge=1, le=MOST_IMAGES, description="images in progress at a time; default 32 on a CPU, two batches on a GPU"
    )
    batch_size: int | None = Field(
        None, ge=1, le=MOST_IMAGES, description="images in one call of a part; default 8 on a CPU, what fits on a GPU"
    )
    precision: Annotated[Precision, BeforeValidator(_short)] = Field(
        "float32",
        description="what parts compute in; losses, distances, steps: float32 always; by default bf16 on a GPU that has it",
    )
    compile: bool | None = Field(None, description="compile the parts; by default on a GPU below float32, for long runs")
    chunk_images: int = Field(
        64,
        ge=1,
        le=MOST_IMAGES,
        description="images in one part of the store: what a kill can lose at most, beside those under way",
    )


class StagesSpec(Strict):
    """How the work of a staged protocol is laid out on the machine. On a CPU in float32 none of this changes a number."""

    batch: int = Field(16, ge=1, le=MOST_IMAGES, description="items handed to a stage at a time: what a kill can lose at most")
    tile: int | None = Field(
        None, ge=1, le=MOST_IMAGES, description="pictures in one call of a part; default 8 on a CPU, 32 on a GPU"
    )
    workers: int = Field(1, ge=1, le=64, description="threads for stages that wait for others, such as a remote rewriter")
    chunk_images: int = Field(64, ge=1, le=MOST_IMAGES, description="images in one part of the store")


FREE = ("device", "strict", *(f"engine.{name}" for name in ("slots", "batch_size", "tile", "chunk_images", "batch", "workers")))
"""Keys of a specification that lay out the work, or end it, and change no number. A resumed run may give them anew."""

FILLED_IN = ("search.step",)
"""Keys that assembling a run fills in where they are not given: a run that leaves them open agrees with any stored value."""

Presets = Mapping[str, Mapping[str, Mapping[str, Any]]]


def from_preset(values: Mapping[str, Any], presets: Presets, *, usual: str) -> dict[str, Any]:
    """The values, with what their preset says of the keys in its sections that are not given."""
    filled = dict(values)
    for section, settings in presets.get(str(values.get("preset", usual)), {}).items():
        given = filled.get(section)
        if given is None or isinstance(given, dict):
            filled[section] = {**settings, **(given or {})}
    return filled


class RunSpec(Strict):
    """What every protocol's specification has."""

    protocol: str
    size: int | None = Field(None, ge=8, le=4096, description="side of the pictures; default what the parts work at")
    limit: int | None = Field(None, ge=1, description="images at most, taken evenly over the data")
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = "cpu"
    strict: bool = Field(False, description="stop at the first unreadable picture instead of skipping it")
    force: bool = Field(False, description="let an oracle that shares weights with the model judge it all the same")

    @property
    def subject(self) -> str:
        """What the run is about, for the name of its folder."""
        return self.protocol


class StagedSpec(RunSpec):
    """What the specification of a protocol that goes from stage to stage has."""

    engine: StagesSpec = Field(default_factory=StagesSpec)


class BatchSpec(Strict):
    """How the work of a protocol that makes images in one step is laid out. On a CPU none of this changes a number."""

    batch_size: int | None = Field(
        None, ge=1, le=MOST_IMAGES, description="images in one call of a part; default 8 on a CPU, 32 on a GPU"
    )
    chunk_images: int = Field(
        64, ge=1, le=MOST_IMAGES, description="images in one part of the store: what a kill can lose at most"
    )


class PlainSpec(RunSpec):
    """What the specification of a protocol that makes images in one step has."""

    model: Part
    data: Data
    oracle: Part | None = Field(None, description="only images in which it sees the class count; default all")
    engine: BatchSpec = Field(default_factory=BatchSpec)

    @property
    def subject(self) -> str:
        """The tested model."""
        return self.model.name
