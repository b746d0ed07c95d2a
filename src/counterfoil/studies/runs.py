"""The runs of a study: each is made once, in a folder named by its specification, and scored by other models and oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from counterfoil import protocols
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec, default_folder
from counterfoil.metrics.comparison import Paired, pair_of
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.parts.contracts import Model
from counterfoil.protocols import rescoring
from counterfoil.protocols.reading import Run, results_of
from counterfoil.protocols.workspace import Given
from counterfoil.studies.base import StudySettings

Watching = Callable[[str], AbstractContextManager[tuple[Callable[[Any], None], Callable[[str], None]]]]
Counting = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

USUAL = ("SA", "PA", "FMR", "FMR_matched", "VR", "steps")


@contextmanager
def _silent(title: str) -> Iterator[Any]:
    yield (lambda progress: None), (lambda line: None)


@contextmanager
def _no_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda more: None


class Runs:
    """Runs of one session; studies that need the same run share it, and an interrupted one is resumed."""

    def __init__(self, settings: StudySettings, *, watching: Watching = _silent, counting: Counting = _no_progress) -> None:
        self.settings = settings
        self.models, self.options, self.folder, self.seed = settings.models, settings.options, settings.folder, settings.seed
        self.protocol = protocols.get(protocols.USUAL)
        self.measures: Mapping[str, Measure] = self.protocol.measures
        self.counting, self._watching = counting, watching
        self._made: dict[str, Run] = {}
        self._seen: dict[tuple[Path, str, str], Observations] = {}

    def under(self, settings: StudySettings) -> Runs:
        """Return the same runs for other settings; what is made stays made."""
        other = Runs(settings, watching=self._watching, counting=self.counting)
        other._made, other._seen = self._made, self._seen
        return other

    def spec(self, model: PartSpec, **changes: Any) -> Any:
        """Return the specification of a run against `model`; `search` is merged into the settings', other keys replace theirs.

        Studies compare runs with each other, and leave out the control of random steps unless they need it.
        """
        settings = self.settings
        images = changes.pop("images", settings.images)
        values: dict[str, Any] = {
            "model": model.model_dump(),
            "data": settings.data.model_dump(),
            "generator": settings.generator.model_dump(),
            "oracle": settings.oracle.model_dump(),
            "size": settings.size,
            "limit": images,
            "seed": settings.seed,
            "device": settings.device,
            "search": {"control": "none", **settings.search, **changes.pop("search", {})},
        }
        if settings.device != "cpu":  # many short runs gain nothing from compiling or from fewer digits
            values["engine"] = {"slots": min(images or 256, 256), "precision": "float32"}
        values.update({key: each.model_dump() if isinstance(each, PartSpec) else each for key, each in changes.items()})
        return protocols.parse(values)

    def workspace(self, spec: Any) -> Any:
        """Build the parts of a specification."""
        return protocols.get(spec.protocol).workspace(spec)

    def make(self, model: PartSpec, *, given: Given | None = None, **changes: Any) -> Run:
        """Return the run against `model`; it is made unless it is there."""
        spec = self.spec(model, **changes)
        name = default_folder(spec).name
        if name not in self._made:
            with self._watching(model.name) as (watch, tell):
                self._made[name] = protocols.run(spec, self.folder / "runs" / name, given=given, watch=watch, tell=tell)
        return self._made[name]

    def observe(
        self,
        run: Run,
        *,
        model: PartSpec | None = None,
        oracle: PartSpec | None = None,
        built: Model | None = None,
        name: str = "",
    ) -> Observations:
        """Read a run as its own model and oracle see its images, or as others do; these are asked unless they have answered.

        The answers of another model are kept under `name`, by default its own.
        """
        asked = {role: name or part.name for role, part in (("model", model), ("oracle", oracle)) if part is not None}
        others = {role: each for role, each in asked.items() if each != part_name(run.spec.get(role))}
        key = (run.path, others.get("model", ""), others.get("oracle", ""))
        if key not in self._seen:
            for role, each in others.items():
                with self.counting(f"{each} on images of {run.path.name}", rescoring.pictures_of(run)) as watch:
                    if role == "model" and model is not None:
                        rescoring.score(run, model, name=each, built=built, device=self.settings.device, watch=watch)
                    elif oracle is not None:
                        rescoring.judge(run, oracle, name=each, device=self.settings.device, watch=watch)
            self._seen[key] = protocols.of(run).observe(run, **others)
        return self._seen[key]

    def predict(self, model: PartSpec, data: PartSpec) -> Estimate:
        """Estimate the accuracy of a model on images as they are."""
        own = self.settings
        shared = {"limit": own.images, "seed": own.seed, "size": own.size, "device": own.device}
        spec = protocols.parse({"protocol": "static", "model": model.model_dump(), "data": data.model_dump(), **shared})
        with self._watching(model.name) as (watch, tell):
            run = protocols.run(spec, self.folder / "runs" / default_folder(spec).name, watch=watch, tell=tell)
        return Estimate.from_dict(results_of(run)["accuracy"])

    def search(self, model: PartSpec, **changes: Any) -> Observations:
        """Read the run against `model`; it is made unless it is there."""
        return self.observe(self.make(model, **changes))

    def values(self, seen: Observations, names: Sequence[str] = USUAL) -> dict[str, Estimate]:
        """Estimate numbers of one model on one run, by name."""
        return {name: seen.estimate(self.measures[name]) for name in names}

    def difference(self, first: Observations, second: Observations, measure: str = "FMR") -> Estimate:
        """Estimate by how much the first exceeds the second, paired by source image."""
        paired = Paired({"first": first, "second": second}, seed=self.seed)
        return pair_of(paired, self.measures[measure], "first", "second").difference
