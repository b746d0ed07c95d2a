"""The ImageNet-D protocol (Zhang, Pan, Kim, Kweon and Mao, 2024): paint objects in nuisances, keep what several models miss.

Prompts are painted; surrogates and the models under test classify every image; an oracle says whether the object is there;
what enough surrogates miss is kept. People can check what was kept, and vision-language models are asked about it. With
`data` instead of a painter, models are tested on a set that was made before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.core.spec import Data, MiningSpec, Part, StagedSpec, Strict
from counterfoil.protocols.base import Outcome, StagedProtocol, lazy
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.observations import Measure
    from counterfoil.protocols.imagenet_d.stages import PaintingSpace
    from counterfoil.protocols.stages import Stage, Tables


class QuestionSpec(Strict):
    """Questions to vision-language models about the main object, with two choices."""

    text: str = Field(
        "What is the main object in this image? Choose from the following list: [{first}, {second}].",
        description="the question, with {first} and {second} where the choices go",
    )
    order: Literal["shuffled", "truth-first"] = Field("shuffled", description="how the two choices are ordered")
    unread: Literal["wrong", "dropped"] = Field("wrong", description="what an answer counts as that means neither choice")
    files: str | None = Field(
        None, description="folder of published question files, whose wrong names are asked; of imagenet-d: data its own"
    )
    both_orders: bool = Field(True, description="ask in the other order too, to measure how far the order decides")

    @field_validator("text")
    @classmethod
    def _both_places(cls, text: str) -> str:
        for slot in ("{first}", "{second}"):
            if slot not in text:
                raise ValueError(f"{text!r} has no place for {slot}; write both {{first}} and {{second}}")
        return text


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
        return self.painter.name if self.painter else self.data.name if self.data else self.protocol


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


class ImagenetD(StagedProtocol):
    """Paint objects in nuisances, keep what several surrogates miss, have people check; or test models on such a set."""

    name = "imagenet-d"
    title = "Paint objects in unusual places and materials, and keep what several models miss"
    spec = ImagenetDSpec
    compared = ("accuracy", "accuracy_painted", "drop")
    held = ("accuracy",)
    ranked = ("accuracy",)
    clean = "accuracy_painted"
    workspace = lazy("counterfoil.protocols.imagenet_d.stages:PaintingSpace.of")
    measures = lazy("counterfoil.protocols.imagenet_d.results:MEASURES")
    observe = lazy("counterfoil.protocols.imagenet_d.results:observe")
    tables = lazy("counterfoil.protocols.imagenet_d.page:tables")
    report_pages = lazy("counterfoil.protocols.imagenet_d.page:ImagenetDPages")

    def stages(self, work: PaintingSpace, tables: Tables) -> Sequence[Stage]:
        """Paint or take the images, ask models and oracle about them, mine, and ask vision-language models about what is kept."""
        from counterfoil.protocols.imagenet_d import stages as steps
        from counterfoil.protocols.imagenet_d.results import looks_table

        painted = work.grid is not None
        first = [steps.Prompts, steps.PaintedImages] if painted else [steps.Taken]
        asked: list[type[Stage]] = [steps.Objects] if "oracle" in work.parts else []
        if painted:
            asked += [*([steps.Embeddings] if "encoder" in work.parts else []), steps.MinedImages]
        return [
            *(each(work, tables) for each in first),
            *(steps.ModelPredictions(work, tables, at, looks_table(each.name)) for at, (each, _) in enumerate(work.readers)),
            *(each(work, tables) for each in asked),
            *(steps.ChatAnswers(work, tables, chat.name) for chat in work.spec.chats),
        ]

    def outcomes(self, work: PaintingSpace, tables: Tables, done: Container[str]) -> Iterator[Outcome]:
        from counterfoil.protocols.imagenet_d.stages import outcome

        for row in tables["paintings"]:
            if row.id not in done:
                yield outcome(work, tables, row)

    def images(self, spec: ImagenetDSpec) -> int:
        from counterfoil.protocols.imagenet_d.grid import read_grid
        from counterfoil.protocols.sets import open_set

        if spec.data:
            return len(open_set(spec).dataset)
        whole = len(read_grid(spec.grid))
        return min(whole, spec.limit or whole)

    def cost(self, spec: ImagenetDSpec, images: int) -> Mapping[str, int]:
        """Bound the calls of the parts; vision-language models are asked about what is kept of the images."""
        return {
            "images painted" if spec.painter else "images": images,
            "model calls, at most": images * (len(spec.surrogates) + len(spec.models)),
            "oracle verdicts, at most": images if spec.oracle else 0,
            "questions, at most": images * len(spec.chats) * (2 if spec.questions.both_orders else 1),
        }

    def measures_of(self, run: Run) -> Mapping[str, Measure]:
        """A set that was made before has the accuracy on it alone."""
        return self.measures if run.spec.get("painter") else {"accuracy": self.measures["accuracy"]}

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        from counterfoil.protocols.imagenet_d.results import results

        return results(run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle)

    def models(self, run: Run, *, scored: bool = False) -> list[str]:
        """List classifiers and vision-language models that took no part in choosing the set."""
        from counterfoil.metrics.observations import models_of, surrogates_of
        from counterfoil.protocols.imagenet_d.results import tested_models

        own = tested_models(run)
        others = [name for name in models_of(run) if name not in (*own, *surrogates_of(run))] if scored else []
        return [*own, *others]

    def on_board(self, run: Run, *, scored: bool = False) -> tuple[list[str], list[str]]:
        """List every classifier that answered; surrogates are marked, and vision-language models were asked something else."""
        from counterfoil.metrics.observations import models_of, surrogates_of
        from counterfoil.protocols.imagenet_d.results import chats_of

        chats = chats_of(run)
        return [name for name in models_of(run) if name not in chats], surrogates_of(run)

    def remarks(self, runs: Sequence[Run], models: Mapping[str, str]) -> list[str]:
        """Name models that the set was made against, and those that were asked an easier question."""
        from counterfoil.core.naming import part_name
        from counterfoil.metrics.observations import surrogates_of
        from counterfoil.protocols.imagenet_d.results import chats_of

        asked = {*models.values(), *(part_name(part) for run in runs for part in run.spec.get("models") or ())}
        unfair = sorted({name for run in runs for name in surrogates_of(run)} & asked)
        chats = {name for run in runs for name in chats_of(run)}
        guessing = [label for label, name in models.items() if name in chats]
        found = []
        if unfair:
            found.append(f"No honest test of {', '.join(unfair)}: the set was made against it or chosen by its mistakes.")
        if guessing and len(guessing) < len(models):
            found.append(
                f"{', '.join(guessing)} chose between two names, so half right is chance; the others chose among all classes."
            )
        return found

    def unfair(self, run: Run, model: str, measures: Sequence[str]) -> str:
        """Refuse a model on a set that its own mistakes chose; what was painted before that is fair."""
        from counterfoil.metrics.observations import surrogates_of

        chosen = [name for name in measures if name != "accuracy_painted"]
        if not chosen or model not in surrogates_of(run):
            return ""
        return (
            f"{model} is a surrogate: the set was made against it or chosen by its mistakes, so its accuracy there is low "
            f"by construction and its {chosen[0]} says nothing of it; gate it by accuracy_painted, or on another set"
        )

    def extent(self, counts: Mapping[str, Any]) -> str:
        return f"{counts['readable']} images, {counts['validated']} in the set"


imagenet_d = ImagenetD()
