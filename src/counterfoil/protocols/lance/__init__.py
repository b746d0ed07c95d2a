"""The LANCE protocol (language-guided counterfactual images, Prabhu, Yenamandra, Chattopadhyay and Hoffman)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.protocols.base import Outcome, StagedProtocol, lazy
from counterfoil.protocols.lance.spec import LanceSpec
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.protocols.stages import Stage, Tables
    from counterfoil.protocols.workspace import Workspace
    from counterfoil.store.stages import Row


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
        from counterfoil.protocols.lance import answers, captions, pictures, realism

        words: list[Callable[..., Stage]] = [captions.Sources, captions.Captions, captions.Edits, captions.Directions]
        made: list[Callable[..., Stage]] = [pictures.Inversions, pictures.Edited, pictures.Quality]
        models = [answers.Predictions(work, tables, at) for at in range(len(work.readers))]
        return [*(each(work, tables) for each in (*words, *made, answers.Verdicts)), *models, realism.Realism(work, tables)]

    def outcomes(self, work: Workspace[LanceSpec], tables: Tables, done: Container[str]) -> Iterator[Outcome]:
        """The records of every source image that is not complete."""
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
        """Compute accuracies, drops and sensitivity, by factor and class."""
        from counterfoil.protocols.lance.results import lance_results

        return lance_results(run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle)

    def on_board(self, run: Run, *, scored: bool = False) -> tuple[list[str], list[str]]:
        """List every model that was asked: the edits were made without any of them."""
        return self.models(run, scored=True), []

    def extent(self, counts: Mapping[str, Any]) -> str:
        """Count the images and the edits that the oracle accepted."""
        return f"{counts['readable']} images, {counts['accepted']} of {counts['edits']} edits accepted"


lance = Lance()
