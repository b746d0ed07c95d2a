"""The specification of a run of the FMR protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from counterfoil.core.spec.base import Data, EngineSpec, Part, RunSpec, Strict

Control = Literal["none", "path", "distance"]


def _control(value: Any) -> Any:
    """Accept yes and no as well: a control at matched path, and none."""
    return {True: "path", False: "none"}.get(value, value) if isinstance(value, bool) else value


class SearchSpec(Strict):
    """How the search climbs. The paper leaves several of these open; reports print the ones used."""

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
    stop_when_fooled: bool = Field(False, description="stop at the first picture the model gets wrong")
    mask: str | None = Field(None, description="a file with the coordinates that may move; 'study sparse' fits one")
    control: Annotated[Control, BeforeValidator(_control)] = Field(
        "path",
        description="random arm: path, as many steps of equal length; distance, along one line as far as the guided climb",
    )


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
