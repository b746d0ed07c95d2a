"""The specification of a run of the FMR protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from counterfoil.core.spec.base import Data, EngineSpec, Part, RunSpec, Strict

OWN_STEPS = {"pixels": 0.002, "transforms": 0.1}
"""Steps, unless others are given, of generators that move other things than latents: half a grey level, a tenth of a severity."""


class SearchSpec(Strict):
    """How the search climbs. The paper leaves several of these open; reports print the ones used."""

    budget: int = Field(10, ge=0, description="steps at most")
    step: float = Field(0.03, gt=0, description="length of a step; pixels: 0.002, transforms: 0.1 unless given")
    unit: Literal["scale", "absolute"] = Field("scale", description="whether a step counts in the generator's own scale")
    norm: Literal["sign", "l2", "raw"] = Field("l2", description="how the gradient is normalised")
    guidance: Literal["auto", "gradient", "search", "random"] = Field(
        "auto", description="gradient ascent, random search, or random steps; auto: gradient where the model has one"
    )
    queries: int | None = Field(
        None, ge=1, description="model calls an image at most; default budget + 1, or 20 × budget for search"
    )
    stop_when_fooled: bool = Field(False, description="stop at the first picture the model gets wrong")
    mask: str | None = Field(None, description="a file with the coordinates that may move; 'study sparse' fits one")
    control: bool = Field(True, description="also take random steps of equal length, as a control")


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
    def _fast_on_a_card(cls, values: Any) -> Any:
        """On a GPU the precision that is not given is bf16; it is written down here, so that a run says what it used."""
        if not isinstance(values, Mapping) or not str(values.get("device", "")).startswith("cuda"):
            return values
        engine = values.get("engine") or {}
        if not isinstance(engine, Mapping) or "precision" in engine:
            return values
        return {**values, "engine": {"precision": "bf16", **engine}}

    @model_validator(mode="before")
    @classmethod
    def _step_that_suits_the_generator(cls, values: Any) -> Any:
        """A step that is not given is one for latents, unless what moves is something else; it is written down here too."""
        if not isinstance(values, Mapping):
            return values
        search = values.get("search") or {}
        own = OWN_STEPS.get(_kind(values.get("generator")))
        if own is None or not isinstance(search, Mapping) or "step" in search:
            return values
        return {**values, "search": {"step": own, **search}}

    @property
    def subject(self) -> str:
        """The tested model."""
        return self.model.name


def _kind(part: Any) -> str:
    """What a part's name begins with, however the part is given."""
    name = part.get("name") if isinstance(part, Mapping) else getattr(part, "name", part)
    return str(name).partition(":")[0]
