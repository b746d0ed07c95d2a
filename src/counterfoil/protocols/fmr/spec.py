"""The specification of an FMR run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from counterfoil.core.spec import Data, EngineSpec, Part, RunSpec, SearchSpec


class FmrSpec(RunSpec):
    """Climb the model's loss in a generator's space while the oracle still sees the class."""

    protocol: Literal["fmr"] = "fmr"
    model: Part
    data: Data
    generator: Part
    oracle: Part
    search: SearchSpec = Field(default_factory=SearchSpec)
    engine: EngineSpec = Field(default_factory=EngineSpec)

    @model_validator(mode="before")
    @classmethod
    def _bf16_on_a_gpu(cls, values: Any) -> Any:
        """On a GPU the precision that is not given is bf16; it is written down here, so that a run says what it used."""
        if not isinstance(values, Mapping) or not str(values.get("device", "")).startswith("cuda"):
            return values
        engine = values.get("engine") or {}
        if not isinstance(engine, Mapping) or "precision" in engine:
            return values
        return {**values, "engine": {"precision": "bf16", **engine}}

    @property
    def subject(self) -> str:
        """The tested model."""
        return self.model.name
