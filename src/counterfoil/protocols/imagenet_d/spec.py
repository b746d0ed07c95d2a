"""The specification of an ImageNet-D run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from counterfoil.core.spec import Data, MiningSpec, Part, StagedSpec, Strict


class QuestionSpec(Strict):
    """Questions to vision-language models about the main object, with two choices."""

    text: str = Field(
        "What is the main object in this image? Choose from the following list: [{first}, {second}].",
        description="the question, with {first} and {second} where the choices go",
    )
    order: Literal["shuffled", "truth-first"] = Field("shuffled", description="how the two choices are ordered")
    unread: Literal["wrong", "dropped"] = Field("wrong", description="what an answer counts as that means neither choice")
    both_orders: bool = Field(True, description="ask in the other order too, to measure how far the order decides")


class ImagenetDSpec(StagedSpec):
    """Paint objects in nuisances, keep what several surrogates miss, have people check; or test models on such a set."""

    PRESETS: ClassVar[Path | None] = Path(__file__).with_name("presets.yaml")
    protocol: Literal["imagenet-d"] = "imagenet-d"
    preset: Literal["fair", "paper"] = Field("fair", description="what keys of questions that are not given come to")
    grid: str | dict[str, Any] = Field("imagenet-d", description="a grid of the package, a file, or the grid itself")
    painter: Part | None = Field(None, description="paints the prompts, as in diffusers:PATH")
    data: Data | None = Field(None, description="a set made before: test models on it instead of painting one")
    surrogates: tuple[Part, ...] = Field((), description="models whose shared misses decide what is kept")
    models: tuple[Part, ...] = Field((), description="models that take no part in that, to be tested")
    chats: tuple[Part, ...] = Field((), description="vision-language models, to be asked")
    oracle: Part | None = Field(None, description="says whether the object is there")
    encoder: Part | None = Field(None, description="finds near-duplicates by what it embeds; default a perceptual hash")
    mining: MiningSpec = Field(default_factory=MiningSpec)
    questions: QuestionSpec = Field(default_factory=QuestionSpec)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """`model` is one more of `models`; keys that are not given come from the preset."""
        if not isinstance(values, dict):
            return values
        filled = {key: value for key, value in values.items() if key != "model"}
        if values.get("model") is not None:
            filled["models"] = [*_as_list(values.get("models")), values["model"]]
        for name in ("surrogates", "models", "chats"):
            if name in filled:
                filled[name] = _as_list(filled[name])
        return cls.from_preset(filled)

    @model_validator(mode="after")
    def _check(self) -> ImagenetDSpec:
        if (self.painter is None) == (self.data is None):
            raise ValueError("give a painter to make a set, or data to test models on one, not both")
        if self.painter is not None and not self.surrogates:
            raise ValueError("no surrogates; name the models whose misses decide what is kept, two or more for leave-one-out")
        if self.painter is not None and self.oracle is None:
            raise ValueError("no oracle; name one that checks that the object is there, or human: to leave it to people")
        if self.data is not None and not (self.models or self.chats):
            raise ValueError("no models to test on the data; name them under models or chats")
        names = [part.name for part in (*self.surrogates, *self.models, *self.chats)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is named twice among surrogates, models and chats; a model takes part once")
        if isinstance(self.mining.misses, int) and not 1 <= self.mining.misses <= max(len(self.surrogates), 1):
            raise ValueError(
                f"mining.misses is 'all' or from 1 to the {len(self.surrogates)} surrogates, got {self.mining.misses}"
            )
        return self

    @property
    def subject(self) -> str:
        """The painter, or the set that models are tested on."""
        return self.painter.name if self.painter else self.data.name if self.data else self.protocol


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
