"""Where a study works: it makes runs, or finds them made, and asks other models and oracles about their pictures.

Runs lie in folders named by their specification, so studies that need the same run share it, and a study that was interrupted
resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from counterfoil import protocols
from counterfoil.core import spec as specs
from counterfoil.core.naming import default_folder
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.parts.contracts import Model
from counterfoil.protocols import rescoring
from counterfoil.protocols.assembly import Given
from counterfoil.store import Run

LAB = {
    "data": PartSpec(name="lab:wardrobe", options={"count": 480}),
    "generator": PartSpec(name="lab:vqgan"),
    "oracle": PartSpec(name="lab:clip"),
}
"""The parts that a study uses when none are given."""

Watching = Callable[[str], AbstractContextManager[tuple[Callable[[Any], None], Callable[[str], None]]]]
Counting = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def _silent(title: str) -> Any:
    yield (lambda progress: None), (lambda line: None)


@contextmanager
def _uncounted(title: str, total: int) -> Any:
    yield lambda more: None


@dataclass(frozen=True)
class Settings:
    """What the person who runs a study decides."""

    folder: Path
    models: tuple[PartSpec, ...] = ()
    data: PartSpec = LAB["data"]
    generator: PartSpec = LAB["generator"]
    oracle: PartSpec = LAB["oracle"]
    size: int | None = None
    images: int | None = None
    seed: int = 0
    device: str = "cpu"
    search: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """The study's own options, defaults included."""

    @property
    def on_the_lab(self) -> bool:
        """Whether every part is the lab's own, so that the truth is known."""
        given = (self.data, self.generator, self.oracle, *self.models)
        return all(part.name.startswith("lab:") for part in given)


class Bench:
    """Makes what a study needs, each thing once."""

    def __init__(self, settings: Settings, *, watching: Watching = _silent, counting: Counting = _uncounted) -> None:
        self.settings = settings
        self._watching, self.counting = watching, counting
        self._made: dict[str, Run] = {}

    def under(self, settings: Settings) -> Bench:
        """The same bench for other settings; runs that are made stay made."""
        other = Bench(settings, watching=self._watching, counting=self.counting)
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
        """Where the study may leave things beside its runs."""
        return self.settings.folder

    def spec(self, model: PartSpec, **changes: Any) -> specs.FmrSpec:
        """The specification of a run against `model`; `search` is merged into the settings' own, other keys replace theirs.

        Studies compare runs with each other, and leave out the control of random steps unless they ask for it.
        """
        settings = self.settings
        images = changes.pop("images", settings.images)
        values: dict[str, Any] = {
            "protocol": "fmr",
            "model": model.model_dump(),
            "data": settings.data.model_dump(),
            "generator": settings.generator.model_dump(),
            "oracle": settings.oracle.model_dump(),
            "size": settings.size,
            "limit": images,
            "seed": settings.seed,
            "device": settings.device,
            "search": {"control": False, **settings.search, **changes.pop("search", {})},
        }
        if settings.device != "cpu":  # many short runs: nothing to gain from compiling, or from fewer digits
            values["engine"] = {"slots": min(images or 256, 256), "precision": "float32"}
        values.update({key: each.model_dump() if isinstance(each, PartSpec) else each for key, each in changes.items()})
        parsed = protocols.parse(values)
        assert isinstance(parsed, specs.FmrSpec)
        return parsed

    def run(self, model: PartSpec, *, given: Given | None = None, **changes: Any) -> Run:
        """The run against `model`, made now unless it is there."""
        spec = self.spec(model, **changes)
        name = default_folder(spec).name
        if name not in self._made:
            out = self.folder / "runs" / name
            with self._watching(model.name) as (watch, tell):
                self._made[name] = protocols.run(spec, out, given=given, watch=watch, tell=tell)
        return self._made[name]

    def scored(self, run: Run, model: PartSpec, *, built: Model | None = None) -> Outcomes:
        """The outcomes for a model on a run's pictures; it is asked unless it has answered."""
        if not self._answered(run, "predictions", "model", model.name):
            with self.counting(f"{model.name} on pictures of {run.path.name}", rescoring.pictures_of(run)) as watch:
                rescoring.score(run, model, built=built, device=self.settings.device, watch=watch)
        return read_outcomes(run, model=model.name)

    def judged(self, run: Run, oracle: PartSpec, *, model: PartSpec | None = None) -> Outcomes:
        """The outcomes under an oracle's verdicts on a run's pictures; it is asked unless it has answered."""
        if not self._answered(run, "verdicts", "oracle", oracle.name):
            with self.counting(f"{oracle.name} on pictures of {run.path.name}", rescoring.pictures_of(run)) as watch:
                rescoring.judge(run, oracle, device=self.settings.device, watch=watch)
        return read_outcomes(run, model=model.name if model else None, oracle=oracle.name)

    def _answered(self, run: Run, table: str, column: str, name: str) -> bool:
        """Whether it has spoken of every picture; one that was interrupted twice may have said much of a few."""
        said: set[tuple[str, str]] = set()
        for batch in run.table(table, columns=["trial_id", "picture", column]):
            said.update((trial, picture) for trial, picture, who in zip(*batch.to_pydict().values(), strict=True) if who == name)
        return len(said) >= rescoring.pictures_of(run)


def settings_for(base: Settings, *, models: Sequence[str], images: int, options: Mapping[str, Any]) -> Settings:
    """The settings filled up with a study's defaults where nothing was given."""
    chosen = base.models or tuple(PartSpec(name=name) for name in models)
    return replace(base, models=chosen, images=base.images or images, options={**options, **base.options})
