"""The ImageNet-D protocol (Zhang, Pan, Kim, Kweon and Mao, 2024): paint objects in nuisances, keep what several models miss.

Prompts are painted; surrogates and the models under test classify every image; an oracle says whether the object is there;
what enough surrogates miss is kept. People can check what was kept, and vision-language models are asked about it. With
`data` instead of a painter, models are tested on a set that was made before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.protocols.base import Outcome, StagedProtocol, lazy
from counterfoil.protocols.imagenet_d.spec import ImagenetDSpec
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.observations import Measure
    from counterfoil.protocols.imagenet_d.sets import PaintingSpace
    from counterfoil.protocols.stages import Stage, Tables


class ImagenetD(StagedProtocol):
    """Paint objects in nuisances, keep what several surrogates miss, have people check; or test models on such a set."""

    name = "imagenet-d"
    title = "Paint objects in unusual places and materials, and keep what several models miss"
    spec = ImagenetDSpec
    compared = ("accuracy", "accuracy_painted", "drop")
    held = ("accuracy",)
    ranked = ("accuracy",)
    clean = "accuracy_painted"
    workspace = lazy("counterfoil.protocols.imagenet_d.sets:PaintingSpace.of")
    measures = lazy("counterfoil.protocols.imagenet_d.results:MEASURES")
    observe = lazy("counterfoil.protocols.imagenet_d.results:observe")
    tables = lazy("counterfoil.protocols.imagenet_d.page:tables")
    report_pages = lazy("counterfoil.protocols.imagenet_d.page:ImagenetDPages")

    def stages(self, work: PaintingSpace, tables: Tables) -> Sequence[Stage]:
        """Paint or take the images, ask models and oracle about them, mine, and ask vision-language models about what is kept."""
        from counterfoil.protocols.imagenet_d import stages as steps

        painted = work.grid is not None
        first = [steps.Prompts, steps.PaintedImages] if painted else [steps.Taken]
        asked: list[type[Stage]] = [steps.Objects] if "oracle" in work.parts else []
        if painted:
            asked += [*([steps.Embeddings] if "encoder" in work.parts else []), steps.MinedImages]
        return [
            *(each(work, tables) for each in first),
            *(steps.ModelPredictions(work, tables, at) for at in range(len(work.readers))),
            *(each(work, tables) for each in asked),
            *(steps.ChatAnswers(work, tables, chat.name) for chat in work.spec.chats),
        ]

    def outcomes(self, work: PaintingSpace, tables: Tables, done: Container[str]) -> Iterator[Outcome]:
        """The records of every image that is not complete."""
        from counterfoil.protocols.imagenet_d.stages import outcome

        for row in tables["paintings"]:
            if row.id not in done:
                yield outcome(work, tables, row)

    def images(self, spec: ImagenetDSpec) -> int:
        """Count the images to paint, or those of the set."""
        from counterfoil.protocols.imagenet_d.grid import read_grid
        from counterfoil.protocols.imagenet_d.sets import open_set

        whole = len(open_set(spec.data).dataset) if spec.data else len(read_grid(spec.grid))
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
        """Compute accuracies before and after mining, for all models together."""
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
        """Count the images and those in the set."""
        return f"{counts['readable']} images, {counts['validated']} in the set"


imagenet_d = ImagenetD()
