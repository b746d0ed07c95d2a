"""A result as it is handed in and kept: one JSON file, and the schema that says what is in it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Literal["counterfoil-result-1"] = "counterfoil-result-1"
NUMBERS = ("SA", "PA", "FMR", "SA_matched", "FMR_matched", "VR", "PA_reconstruction", "PA_random", "FMR_random")
"""The numbers of a result, all of which follow from its answers."""

Name = Annotated[str, Field(min_length=1, max_length=300)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Said = Annotated[str, Field(pattern=r"^[01-]*$", description="one letter an image: 1 yes, 0 no, - not known or not asked")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Strict):
    """One estimate with its 95 % interval; without a value, the note says why there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int = Field(ge=0)
    note: str = Field("", max_length=500)


class Speed(_Strict):
    """How large and how fast the model was, and where that was measured."""

    parameters: int | None = Field(None, ge=0)
    images_per_second: float | None = Field(None, gt=0)
    batch: int | None = Field(None, ge=1)
    size: int | None = Field(None, ge=1, description="side of the pictures")
    device: str = Field("", max_length=200)
    threads: int | None = Field(None, ge=1)


class Model(_Strict):
    """The model that was tested."""

    name: Name
    options: dict[str, Any] = Field(default_factory=dict)
    weights: Sha256 | None = Field(None, description="hash of its weights, where they could be seen")


class Test(_Strict):
    """What the model was put to. Results of equal tests stand in one table."""

    settings: dict[str, Any] = Field(description="the specification without the model and without what changes no number")
    classes: int = Field(ge=1)
    classes_sha256: Sha256
    against: str = Field("", max_length=300, description="the model the pictures were made against; empty: each against itself")
    surrogates: list[Name] = Field(
        default_factory=list, description="models whose mistakes decided which pictures are in the set"
    )

    @property
    def identity(self) -> str:
        """The same for equal tests only."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:12]


class Answers(_Strict):
    """What was said of each image, so that numbers can be checked and models compared image by image.

    Of a set that was painted and then mined, `clean` is about every painted picture that shows its object, `accepted` says
    which of them are in the set, and `made` is about these.
    """

    images: list[Key] = Field(description="a hash of each image's id and pixels, in rising order")
    clean: Said = Field(description="whether the model is right on the source image")
    accepted: Said = Field(description="whether the oracle accepts the picture made of it")
    made: Said = Field(description="whether the model is right on that picture")
    reconstruction: Said = Field(description="whether it is right on the generator's plain rendering")
    random: Said = Field(description="whether it is right on the control's picture, where the oracle accepts it")
    clusters: list[int] = Field(default_factory=list, description="images with equal numbers are not independent; empty: all are")


class Entry(_Strict):
    """A result."""

    format: Literal["counterfoil-result-1"] = FORMAT
    protocol: Literal["fmr", "imagenet-d"] = "fmr"
    model: Model
    test: Test
    numbers: dict[
        Literal["SA", "PA", "FMR", "SA_matched", "FMR_matched", "VR", "PA_reconstruction", "PA_random", "FMR_random"], Number
    ]
    seed: int = Field(ge=0, description="of the bootstrap")
    answers: Answers
    speed: Speed | None = None
    command: str = Field(max_length=10_000, description="what makes it again")
    repeatable: bool = Field(True, description="whether the command alone is enough: parts given as objects have no name")
    caution: str = Field("", max_length=1000, description="why the oracle's word may not count for this model")
    versions: dict[str, str] = Field(default_factory=dict)
    submitter: str = Field("", max_length=200)
    comment: str = Field("", max_length=2000)
    report: str = Field("", max_length=500, pattern=r"^(https://.*)?$", description="where its report is, if it is on the web")

    @property
    def surrogate(self) -> bool:
        """Whether the pictures of a test that other models took too were made against this one, or chosen by its mistakes."""
        return self.model.name in (*self.test.surrogates, self.test.against)

    @property
    def identity(self) -> str:
        """Its file name: the model, and a hash of what was tested on what."""
        content = [self.model.model_dump(), self.test.identity, self.answers.images]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", self.model.name).strip("-.")[:40] or "model"
        return f"{slug}-{digest}"


def schema() -> dict[str, Any]:
    """The JSON schema of a result file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Entry.model_json_schema()}
