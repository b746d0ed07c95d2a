"""The runs of a study: each is made once, in a folder named by its specification, and scored by other models and oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from counterfoil import protocols
from counterfoil.core.spec import PartSpec, default_folder
from counterfoil.parts.contracts import Model
from counterfoil.protocols import rescoring
from counterfoil.protocols.fmr.results import Outcomes, read_outcomes
from counterfoil.protocols.workspace import Given
from counterfoil.store import Run
from counterfoil.studies.base import StudySettings

Watching = Callable[[str], AbstractContextManager[tuple[Callable[[Any], None], Callable[[str], None]]]]
Counting = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


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
        self._watching, self.counting = watching, counting
        self._made: dict[str, Run] = {}

    def under(self, settings: StudySettings) -> Runs:
        """Return the same runs for other settings; what is made stays made."""
        other = Runs(settings, watching=self._watching, counting=self.counting)
        other._made = self._made
        return other

    @property
    def models(self) -> tuple[PartSpec, ...]:
        """The models under study."""
        return self.settings.models

    @property
    def options(self) -> Mapping[str, Any]:
        """The study's own options."""
        return self.settings.options

    @property
    def folder(self) -> Path:
        """The folder in which a study may keep things next to its runs."""
        return self.settings.folder

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

    def make(self, model: PartSpec, *, given: Given | None = None, **changes: Any) -> Run:
        """Return the run against `model`; it is made unless it is there."""
        spec = self.spec(model, **changes)
        name = default_folder(spec).name
        if name not in self._made:
            with self._watching(model.name) as (watch, tell):
                self._made[name] = protocols.run(spec, self.folder / "runs" / name, given=given, watch=watch, tell=tell)
        return self._made[name]

    def score(self, run: Run, model: PartSpec, *, built: Model | None = None) -> Outcomes:
        """Return the outcomes for a model on a run's images; the model is queried unless its answers are stored."""
        if not self._has_all_answers(run, "predictions", "model", model.name):
            with self.counting(f"{model.name} on images of {run.path.name}", rescoring.pictures_of(run)) as watch:
                rescoring.score(run, model, built=built, device=self.settings.device, watch=watch)
        return read_outcomes(run, model=model.name)

    def judge(self, run: Run, oracle: PartSpec) -> Outcomes:
        """Return the outcomes under an oracle's verdicts on a run's images; the oracle is queried unless they are stored."""
        if not self._has_all_answers(run, "verdicts", "oracle", oracle.name):
            with self.counting(f"{oracle.name} on images of {run.path.name}", rescoring.pictures_of(run)) as watch:
                rescoring.judge(run, oracle, device=self.settings.device, watch=watch)
        return read_outcomes(run, oracle=oracle.name)

    def _has_all_answers(self, run: Run, table: str, column: str, name: str) -> bool:
        """Tell whether all answers are there; after two interruptions there may be many for a few images."""
        found: set[tuple[str, str]] = set()
        for batch in run.table(table, columns=["trial_id", "picture", column]):
            rows = zip(*batch.to_pydict().values(), strict=True)
            found.update((trial, which) for trial, which, who in rows if who == name)
        return len(found) >= rescoring.pictures_of(run)
