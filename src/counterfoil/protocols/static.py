"""Test a model on a labelled set as it is: an exported set, a released one, or one's own images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.core.spec import PlainSpec
from counterfoil.protocols.base import ImageProtocol, lazy
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.observations import Measure
    from counterfoil.metrics.tables import Table
    from counterfoil.parts.datasets.image_set import ImageSet
    from counterfoil.protocols.workspace import Given


class StaticSpec(PlainSpec):
    """Test a model on a labelled set as it is."""

    protocol: Literal["static"] = "static"


class Static(ImageProtocol):
    """Only predict: accuracy on a labelled set, and by class."""

    name = "static"
    title = "Test a model on a labelled set as it is, such as an exported or a released one"
    spec = StaticSpec
    compared = held = ranked = ("accuracy",)
    clean = "accuracy"
    workspace = lazy("counterfoil.protocols.sets:StaticSpace.of")
    outcomes = lazy("counterfoil.protocols.running:as_they_are")

    def open_data(self, spec: StaticSpec, given: Given | None) -> ImageSet:
        from counterfoil.protocols.sets import open_set

        return open_set(spec, given).dataset

    def unfair(self, run: Run, model: str, measures: Sequence[str]) -> str:
        """Refuse a model on a set that its own mistakes chose."""
        from counterfoil.metrics.observations import surrogates_of

        if model not in surrogates_of(run):
            return ""
        return f"{model} is a surrogate: its mistakes chose the set, so its accuracy there is low; use another set"

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        """Compute accuracies; of ImageNet-C also the mean corruption error."""
        from counterfoil.protocols.corruptions import corruption_errors

        found = super().results(run, model=model, oracle=oracle)
        return {**found, **corruption_errors(self.observe(run, model=model, oracle=oracle))}

    def tables(self, results: Mapping[str, Any]) -> list[Table]:
        """Put results into tables."""
        from counterfoil.protocols.corruptions import corruption_table

        first, *others = super().tables(results)
        return [first, *corruption_table(results), *others]

    def measures_of(self, run: Run) -> Mapping[str, Measure]:
        """Its images have no source image, so that accuracy is all there is."""
        return {"accuracy": self.measures["accuracy"]}


static = Static()
