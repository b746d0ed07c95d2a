"""The LANCE protocol (language-guided counterfactual images, Prabhu, Yenamandra, Chattopadhyay and Hoffman)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from counterfoil.core.spec import Data, Part, PartSpec, StagedSpec, Strict
from counterfoil.protocols.base import Outcome, StagedProtocol, lazy
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.protocols.stages import Stage, Tables
    from counterfoil.protocols.workspace import Workspace
    from counterfoil.store.stages import Row


Factor = Literal["subject", "object", "background", "adjective", "domain", "weather"]
FACTORS: tuple[str, ...] = get_args(Factor)
MOST = 50  # edits of a factor
CHECKS = {
    "image changed too much": "the edited image is too unlike the source image",
    "caption does not fit": "the source image is too unlike its own caption",
    "edit does not fit": "the edited image is too unlike the edited caption",
    "wrong direction": "the image did not change the way the caption did",
    "still the old words": "the edited image is nearer to the old caption than to the new one",
}
"""The checks in their order, with a sentence for people."""


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
        return self.model.name


class Lance(StagedProtocol):
    """Caption, rewrite one factor of the caption, edit the image to match, keep what passes and still shows the class."""

    name = "lance"
    title = "Edit one factor of each image by language, where an oracle still sees the class"
    spec = LanceSpec
    compared = ("SA", "accuracy_edited", "drop", "sensitivity")
    held = ("SA", "drop")
    ranked = ("drop",)
    clean = "SA"
    measures = lazy("counterfoil.protocols.lance.results:MEASURES")
    observe = lazy("counterfoil.protocols.lance.results:observe")
    tables = lazy("counterfoil.protocols.lance.page:tables")
    report_pages = lazy("counterfoil.protocols.lance.page:LancePages")

    def stages(self, work: Workspace[LanceSpec], tables: Tables) -> Sequence[Stage]:
        """Words, images, answers; captions and edits are files that people may correct between stages."""
        from counterfoil.protocols.lance import answers, captions, images

        words: list[Callable[..., Stage]] = [captions.Sources, captions.Captions, captions.Edits, captions.Directions]
        made: list[Callable[..., Stage]] = [images.Inversions, images.Edited, images.Quality]
        models = [answers.Predictions(work, tables, at) for at in range(len(work.readers))]
        return [*(each(work, tables) for each in (*words, *made, answers.Verdicts)), *models, answers.Realism(work, tables)]

    def outcomes(self, work: Workspace[LanceSpec], tables: Tables, done: Container[str]) -> Iterator[Outcome]:
        from counterfoil.protocols.lance.answers import outcome
        from counterfoil.protocols.lance.captions import check_edits

        edits: dict[str, list[Row]] = {}
        for row in check_edits(tables["edits"]):
            edits.setdefault(row.of, []).append(row)
        for source in tables["sources"]:
            if source.id not in done:
                yield outcome(work, tables, source, edits.get(source.id, []))

    def cost(self, spec: LanceSpec, images: int) -> Mapping[str, int]:
        """Bound the calls of the parts; what a check rejects costs nothing further."""
        edits = images * sum(map(spec.edit.most, spec.edit.factors))
        seen = 2 * images + edits
        return {
            "images, captions, inversions": images,
            "captions to rewrite": images * len(spec.edit.factors),
            "edits, at most": edits,
            "oracle verdicts, at most": seen,
            "model calls, at most": seen * (1 + len(spec.others)),
        }

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        from counterfoil.protocols.lance.results import lance_results

        return lance_results(run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle)

    def on_board(self, run: Run, *, scored: bool = False) -> tuple[list[str], list[str]]:
        """List every model that was asked: the edits were made without any of them."""
        return self.models(run, scored=True), []

    def extent(self, counts: Mapping[str, Any]) -> str:
        return f"{counts['readable']} images, {counts['accepted']} of {counts['edits']} edits accepted"


lance = Lance()
