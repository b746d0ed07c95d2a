"""Runs studies and writes down what they found, one JSON file each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import studies
from counterfoil.core.errors import BadSpec, CounterfoilError, UsageError
from counterfoil.engine.transfers import settle
from counterfoil.store.files import write_whole, writing
from counterfoil.studies.bench import Bench, Settings, settings_for
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Findings
from counterfoil.studies.wording import lines


@dataclass(frozen=True)
class Report:
    """What one study found, on what, and what it cost."""

    study: Study
    settings: Settings
    findings: Findings
    seconds: float
    cpu_seconds: float

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from lines(
            self.findings,
            title=f"{self.study.name}: {studies.NAMES[self.study.name]}",
            published=self.study.published,
        )
        yield ""
        yield f"{self.seconds:.0f} s, {self.cpu_seconds:.0f} s of processor time"

    def to_dict(self) -> dict[str, Any]:
        """As it is written; times are left out, so that the same study gives the same bytes."""
        settings = self.settings
        return {
            "study": self.study.name,
            "shows": studies.NAMES[self.study.name],
            "published": self.study.published,
            "models": [part.model_dump() for part in settings.models],
            **{role: getattr(settings, role).model_dump() for role in ("data", "generator", "oracle")},
            "size": settings.size,
            "images": settings.images,
            "seed": settings.seed,
            "search": dict(settings.search),
            "options": dict(settings.options),
            "on_the_lab": settings.on_the_lab,
            **self.findings.to_dict(),
        }

    @property
    def failed(self) -> list[str]:
        """The claims that have to hold on the lab and were not shown to; elsewhere nothing has to."""
        if not self.settings.on_the_lab:
            return []
        return [each.claim for each in self.findings.checks if each.required and each.holds is not True]


@dataclass(frozen=True)
class Failed:
    """A study that could not be run, and why."""

    name: str
    problem: str

    def lines(self) -> Iterator[str]:
        """Return the problem as text."""
        yield f"{self.name}: could not be run"
        yield self.problem


Outcome = Report | Failed


def run_all(names: Sequence[str], base: Settings, bench: Bench | None = None) -> Iterator[Outcome]:
    """Run several studies that share their runs; one that fails does not keep the others from running."""
    bench = bench or Bench(base)
    for name in names:
        try:
            yield run(name, base, bench)
        except CounterfoilError as error:
            yield Failed(name, str(error))


def run(name: str, base: Settings, bench: Bench | None = None) -> Report:
    """Run one study and write NAME.json into its folder."""
    study = studies.load(name)
    settings = settings_for(_checked(study, base), models=study.models, images=study.images, options=study.options)
    if len(settings.models) < study.least_models:
        raise UsageError(f"{name}: takes {study.least_models} models or more, got {len(settings.models)}; repeat --model")
    names = [model.name for model in settings.models]
    if len(set(names)) < len(names):
        raise UsageError(f"{name}: {max(names, key=names.count)} is given twice; a model has nothing to differ from itself in")
    bench = (bench or Bench(settings)).under(settings)
    began, worked = time.monotonic(), time.process_time()
    findings = study.run(bench)
    settle(settings.device)
    report = Report(study, settings, findings, time.monotonic() - began, time.process_time() - worked)
    write(settings.folder / f"{name}.json", report.to_dict())
    return report


def _checked(study: Study, base: Settings) -> Settings:
    """Without the options that belong to other studies, as when all are run; a lone study's must be its own."""
    unknown = [key for key in base.options if key not in study.options]
    if unknown:
        known = ", ".join(study.options) or "none of its own"
        raise BadSpec(f"--set {unknown[0]}: {study.name} has no such option; it has {known}, and those of a run's search")
    return replace(base, options={key: _like(study.options[key], key, value) for key, value in base.options.items()})


def _like(default: Any, key: str, value: Any) -> Any:
    """An option's value in the kind of its default."""
    if isinstance(default, tuple):
        items = value if isinstance(value, list | tuple) else str(value).split(",")
        kind = type(default[0])
        try:
            return tuple(kind(item) for item in items)
        except (TypeError, ValueError):
            raise BadSpec(
                f"--set {key}={value!r}: takes a list of {kind.__name__}, as in {key}={','.join(map(str, default))}"
            ) from None
    try:
        return type(default)(value)
    except (TypeError, ValueError):
        raise BadSpec(f"--set {key}={value!r}: takes a {type(default).__name__}, as in {key}={default}") from None


def write(path: Path, content: dict[str, Any]) -> None:
    """Write findings as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with writing(path):
        write_whole(path, text.encode())
