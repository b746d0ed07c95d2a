"""The specification of an FMR run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from counterfoil.core.spec import Data, EngineSpec, Part, RunSpec, SearchSpec, as_part


class FmrSpec(RunSpec):
    """Climb the model's loss in a generator's space while the oracle still sees the class."""

    PRESETS: ClassVar[Path | None] = Path(__file__).with_name("presets.yaml")
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
        values = cls.from_preset(values)
        model = as_part(values.get("model"))
        if isinstance(model, Mapping) and isinstance(model.get("name"), str):
            preset = cls.presets().get(str(values.get("preset")), {})
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
