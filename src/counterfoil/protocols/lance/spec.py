"""The specification of a LANCE run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from counterfoil.core.spec import Data, Part, PartSpec, StagedSpec, Strict

Factor = Literal["subject", "object", "background", "adjective", "domain", "weather"]
FACTORS: tuple[str, ...] = get_args(Factor)
MOST = 50  # edits of a factor


class EditSpec(Strict):
    """Rewriting of captions."""

    factors: tuple[Factor, ...] = Field(
        ("subject", "object", "background", "adjective", "domain"), min_length=1, description="factors of the caption to rewrite"
    )
    per_factor: int | dict[Factor, int] = Field(
        1, description="edits an image and factor at most; or by factor, as in {adjective: 3}, and one of the others"
    )
    words: str | None = Field(
        None, description="word lists to check edits by: english, wardrobe or a file; default the rewriter's"
    )
    class_similarity: float | None = Field(
        0.5,
        gt=0,
        le=1,
        description="edits are dropped whose removed words are this similar to the class name; null: never",
    )

    @field_validator("per_factor", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        by_factor = value if isinstance(value, dict) else dict.fromkeys(FACTORS, value)
        if strange := [factor for factor in by_factor if factor not in FACTORS]:
            raise ValueError(f"no factor named {strange[0]!r}; factors are {', '.join(FACTORS)}")
        if not all(type(number) is int and 0 <= number <= MOST for number in by_factor.values()):
            raise ValueError(f"give 0 to {MOST} edits, for all factors or by factor as in {{adjective: 3}}, got {value!r}")
        return value

    @model_validator(mode="after")
    def _some(self) -> EditSpec:
        if not any(map(self.most, self.factors)):
            factors = ", ".join(self.factors)
            raise ValueError(f"per_factor is 0 for every factor ({factors}), so no edit can be made; allow one at least")
        return self

    def most(self, factor: str) -> int:
        """Edits of a factor that an image may have."""
        return self.per_factor if isinstance(self.per_factor, int) else self.per_factor.get(factor, 1)  # type: ignore[call-overload]


class QualitySpec(Strict):
    """Bars that an edited image must reach, as cosine similarities of the encoder."""

    image_image: float = Field(0.7, ge=-1, le=1, description="edited image to source image, at least")
    image_text: float = Field(0.2, ge=-1, le=1, description="each image to its own caption, at least")
    directional: float = Field(0.2, ge=-1, le=1, description="change of image to change of caption, at least")
    nearer: bool = Field(True, description="the edited image must be nearer to the new words than to the old ones")
    choose: Literal["best", "last"] = Field(
        "best", description="of the edits of a sweep that pass: the one of highest directional similarity, or the last"
    )


class RealismSpec(Strict):
    """Networks that measure whether captions and images are natural."""

    features: Part | None = Field(None, description="features for the Fréchet distance, as in torchscript:inception.pt")
    language: str | None = Field(None, description="a language model for the perplexity of captions, as in lab:rewriter")


class LanceSpec(StagedSpec):
    """Caption, rewrite one factor, edit the image to match, keep what passes and still shows the class."""

    PRESETS: ClassVar[Path | None] = Path(__file__).with_name("presets.yaml")
    protocol: Literal["lance"] = "lance"
    preset: Literal["default", "paper", "released", "today"] = Field(
        "default", description="what keys that are not given come to"
    )
    model: Part
    others: tuple[Part, ...] = Field((), description="more models to test on the same images")
    data: Data
    captioner: Part
    rewriter: Part = Field(default_factory=lambda: PartSpec(name="lexicon:"))
    editor: Part
    encoder: Part = Field(description="compares images and words for the quality control, as in clip:PATH")
    oracle: Part
    edit: EditSpec = Field(default_factory=EditSpec)
    quality: QualitySpec = Field(default_factory=QualitySpec)
    realism: RealismSpec = Field(default_factory=RealismSpec)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        return cls.from_preset(values) if isinstance(values, dict) else values

    @property
    def subject(self) -> str:
        """The tested model."""
        return self.model.name
