"""The specification of an FMR run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from counterfoil.core.spec import Data, EngineSpec, Part, RunSpec, SearchSpec, as_part, from_preset
from counterfoil.core.tables import parse_yaml, read_text


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Read what each preset is about, what it needs beside a model and data, and its values."""
    path = Path(__file__).with_name("presets.yaml")
    found: Mapping[str, Mapping[str, Any]] = parse_yaml(read_text(path), what=path.name)
    return found


class FmrSpec(RunSpec):
    """Climb the model's loss in a generator's space while the oracle still sees the class."""

    protocol: Literal["fmr"] = "fmr"
    preset: Literal["default", "paper"] = Field("default", description="what keys that are not given come to")
    model: Part
    data: Data
    generator: Part
    oracle: Part
    search: SearchSpec = Field(default_factory=SearchSpec)
    engine: EngineSpec = Field(default_factory=EngineSpec)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Keys that are not given come from the preset. The precision on a GPU is bf16 unless either says otherwise."""
        if not isinstance(values, Mapping):
            return values
        values = from_preset(values, {name: each["values"] for name, each in presets().items()}, usual="default")
        model = as_part(values.get("model"))
        if isinstance(model, Mapping) and isinstance(model.get("name"), str):
            preset = presets().get(str(values.get("preset")), {})
            own = preset.get("models", {}).get(model["name"].partition(":")[0], {})
            values["model"] = {**model, "options": {**own, **(model.get("options") or {})}}
        if not str(values.get("device", "")).startswith("cuda"):
            return values
        engine = values.get("engine") or {}
        if not isinstance(engine, Mapping) or "precision" in engine:
            return values
        return {**values, "engine": {"precision": "bf16", **engine}}

    @property
    def subject(self) -> str:
        """The tested model."""
        return self.model.name
