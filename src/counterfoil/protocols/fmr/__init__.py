"""The FMR protocol (foundation-model-oriented robustness, Zhang, Liu, Li, Xie, Kim and Wang)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.core.errors import UsageError
from counterfoil.protocols.base import ImageProtocol, Outcome
from counterfoil.protocols.fmr.spec import FmrSpec, presets
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.observations import Measure, Observations
    from counterfoil.metrics.tables import Table
    from counterfoil.protocols.fmr.climbing import ClimbingSpace
    from counterfoil.protocols.workspace import Given, Source
    from counterfoil.report.page import Caution, Page
    from counterfoil.report.site import Site


class Fmr(ImageProtocol):
    """Climb the tested model's loss in a generator's space while the oracle still sees the class."""

    name = "fmr"
    title = "Climb the model's loss in a generator's space while an oracle still sees the class"
    spec = FmrSpec
    compared = ("SA", "PA", "FMR", "FMR_matched", "drop", "drop_matched")
    held = ("SA", "FMR")
    ranked = ("FMR_matched", "FMR")
    against_model = True
    decided_by_parts = ("search.step",)
    clean = "SA"

    def presets(self) -> Mapping[str, str]:
        """Describe each preset, and what it needs beside a model and data."""
        return {name: ". ".join(each[key] for key in ("about", "needs") if key in each) for name, each in presets().items()}

    def workspace(self, spec: FmrSpec, given: Given | None = None) -> ClimbingSpace:
        """Build the parts, with the engine that climbs."""
        from counterfoil.protocols.fmr.climbing import ClimbingSpace

        return ClimbingSpace.of(spec, given)

    def check(self, work: ClimbingSpace) -> None:
        """Try whether a plain reconstruction is accepted; then find out how many images fit on the device."""
        from counterfoil.protocols.fmr.climbing import check

        check(work)

    def outcomes(self, work: ClimbingSpace, sources: Iterable[Source | None]) -> Iterator[Outcome | Future[Outcome]]:
        """Climb every image."""
        from counterfoil.protocols.fmr.climbing import outcomes

        return outcomes(work, sources)

    def finished(self, work: ClimbingSpace, out: Path) -> None:
        """Record how large and how fast the model is."""
        from counterfoil.protocols import speed

        speed.record(work.model, work.spec.model.name, out, size=work.size, device=work.spec.device)

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

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Everything in a run's results, and the accuracy drops."""
        from counterfoil.protocols.fmr.results import MEASURES

        return MEASURES

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        """Compute SA, PA, FMR and what stands around them."""
        from counterfoil.protocols.fmr.results import fmr_results

        return fmr_results(run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle)

    def observe(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
        """Read one row per source image."""
        from counterfoil.protocols.fmr.results import observe

        return observe(run, model=model, oracle=oracle)

    def transfer(self, runs: Sequence[Run], names: Sequence[str]) -> list[Table]:
        """Set images that were made against each model beside all models that were scored on them, one table per number."""
        from counterfoil.protocols.fmr import transfer

        if unknown := [name for name in names if name not in transfer.MEANINGS]:
            raise UsageError(f"--transfer: a cell has no {unknown[0]}; it has {', '.join(transfer.MEANINGS)}")
        return list(transfer.tables_of(transfer.transfer_of(runs), [*(names or ["FMR"]), "harm"]))

    def tables(self, results: Mapping[str, Any]) -> list[Table]:
        """Put results into tables."""
        from counterfoil.protocols.fmr.page import tables

        return tables(results)

    def extent(self, counts: Mapping[str, Any]) -> str:
        """Count the images and those that the oracle accepted."""
        undecided = f", {counts['pending']} undecided" if counts["pending"] else ""
        return f"{counts['readable']} images, {counts['validated']} accepted{undecided}"

    def cautions(self, run: Run, results: Mapping[str, Any], *, model: str | None = None) -> list[Caution]:
        """List what to know before believing results; of another model only what is easily misread."""
        from counterfoil.protocols.fmr.cautions import cautions_of

        accepted = results["counts"]["validated"]
        found = cautions_of(results, classes=len(run.classes)) if accepted else []
        return [each for each in found if model is None or each.kind == "care"]  # the steps were guided against the run's own

    def citation(self, run: Run, results: Mapping[str, Any]) -> str:
        """Describe set-up and numbers in one paragraph."""
        from counterfoil.protocols.fmr.citation import citation

        return citation(run, results)

    def pages(self, runs: Sequence[Run], labels: Sequence[str], site: Site) -> Sequence[Page]:
        """Make a page for each run and, of several, a comparison before them."""
        from counterfoil.protocols.fmr.page import FmrPages

        return FmrPages(self, runs, labels, site).pages()


fmr = Fmr()
