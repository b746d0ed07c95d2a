"""The FMR protocol (foundation-model-oriented robustness, Zhang, Liu, Li, Xie, Kim and Wang)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import Data, EngineSpec, Part, RunSpec, SearchSpec, as_part
from counterfoil.protocols.base import ImageProtocol, lazy
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.tables import Table
    from counterfoil.report.page import Caution


class FmrSpec(RunSpec):
    """Climb the model's loss in a generator's space while the oracle still sees the class."""

    PRESETS: ClassVar[Path | None] = Path(__file__).with_name("presets.yaml")
    protocol: Literal["fmr"] = "fmr"
    preset: Literal["default", "paper"] = Field("default", description="what keys that are not given come to")
    model: Part
    data: Data
    generator: Part
    oracle: Part
    search: SearchSpec = Field(default_factory=SearchSpec)
    engine: EngineSpec = Field(default_factory=EngineSpec)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Keys that are not given come from the preset. The precision on a GPU is bf16 unless either says otherwise."""
        if not isinstance(values, Mapping):
            return values
        values = cls.from_preset(values)
        model = as_part(values.get("model"))
        if isinstance(model, Mapping) and isinstance(model.get("name"), str):
            preset = cls.presets().get(str(values.get("preset")), {})
            own = preset.get("models", {}).get(model["name"].partition(":")[0], {})
            values["model"] = {**model, "options": {**own, **(model.get("options") or {})}}
        if not str(values.get("device", "")).startswith("cuda"):
            return values
        engine = values.get("engine") or {}
        if not isinstance(engine, Mapping) or "precision" in engine:
            return values
        return {**values, "engine": {"precision": "bf16", **engine}}

    @property
    def subject(self) -> str:
        return self.model.name


class Fmr(ImageProtocol):
    """Climb the tested model's loss in a generator's space while the oracle still sees the class."""

    name = "fmr"
    title = "Climb the model's loss in a generator's space while an oracle still sees the class"
    spec = FmrSpec
    compared = ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")
    held = ("SA", "FMR")
    ranked = ("FMR_matched", "FMR")
    against_model = True
    clean = "SA"
    workspace = lazy("counterfoil.protocols.fmr.climbing:ClimbingSpace.of")
    check = lazy("counterfoil.protocols.fmr.climbing:check")
    outcomes = lazy("counterfoil.protocols.fmr.climbing:outcomes")
    measures = lazy("counterfoil.protocols.fmr.transfer:EVERY")
    observe = lazy("counterfoil.protocols.fmr.results:observe")
    tables = lazy("counterfoil.protocols.fmr.page:tables")
    citation = lazy("counterfoil.protocols.fmr.wording:citation")
    report_pages = lazy("counterfoil.protocols.fmr.page:FmrPages")

    def cost(self, spec: FmrSpec, images: int) -> Mapping[str, int]:
        """Bound the calls of one image each; climbs that the oracle stops early cost less.

        `auto` guidance is taken for gradients; a search without them spends its queries.
        """
        search = spec.search
        steps = min(search.budget + 1, search.queries or search.budget + 1)  # images of a climb that keeps every step
        searching = search.guidance == "search"
        guided = (search.queries or 20 * search.budget + 1) if searching else steps
        control = steps - 1 if search.control != "none" and search.guidance != "random" else 0  # it shares the first image
        with_gradient = (search.guidance in ("auto", "gradient") or search.norm == "raw") + (control > 0 and search.norm == "raw")
        gradients = 0 if searching else with_gradient * min(search.budget, steps)
        return {
            "images": images,
            "model calls, at most": images * (1 + guided + control),
            "of these with a gradient": images * gradients,
            "images rendered, at most": images * (guided + control),
            "oracle verdicts, at most": images * (1 + guided + control),
        }

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        from counterfoil.protocols.fmr.results import fmr_results

        return fmr_results(run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle)

    def transfer(self, runs: Sequence[Run], names: Sequence[str]) -> list[Table]:
        """Cross the models that images were made against with all models that were scored on them, one table per number."""
        from counterfoil.protocols.fmr import transfer

        if unknown := [name for name in names if name not in transfer.MEANINGS]:
            raise UsageError(f"--transfer: a cell has no {unknown[0]}; it has {', '.join(transfer.MEANINGS)}")
        matrix = transfer.transfer_of(runs)
        measures = {name: f"{name}: {transfer.MEANINGS[name]}, 95 % intervals" for name in [*(names or ["FMR"]), "harm"]}
        return [transfer.table_of(matrix, name, title) for name, title in measures.items()]

    def extent(self, counts: Mapping[str, Any]) -> str:
        undecided = f", {counts['pending']} undecided" if counts["pending"] else ""
        return f"{counts['readable']} images, {counts['validated']} accepted{undecided}"

    def cautions(self, run: Run, results: Mapping[str, Any], *, model: str | None = None) -> list[Caution]:
        """List what to know before believing results; of another model only what is easily misread."""
        from counterfoil.protocols.fmr.wording import cautions_of

        accepted = results["counts"]["validated"]
        found = cautions_of(results, classes=len(run.classes)) if accepted else []
        return [each for each in found if model is None or each.kind == "care"]  # the steps were guided against the run's own


fmr = Fmr()
