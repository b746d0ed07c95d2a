"""Runs studies, writes what they found, one JSON file each, and sums up what must hold where the truth is known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import studies
from counterfoil.core.errors import BadSpec, CounterfoilError
from counterfoil.engine.device import synchronize
from counterfoil.metrics.tables import Cell, Column, Table
from counterfoil.store.files import write_whole, writing
from counterfoil.studies.base import Findings, Study, StudySettings
from counterfoil.studies.runs import Runs


@dataclass(frozen=True)
class StudyReport:
    """One study's findings, settings and cost; without findings the reason why it could not be run."""

    study: Study
    settings: StudySettings
    findings: Findings = Findings(())
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    problem: str = ""

    @property
    def required(self) -> list[tuple[str, str, str]]:
        """List claims that must hold, as they must where the truth is known, with answer and evidence."""
        if self.problem:
            return [("", "FAILED", self.problem)]
        claims = [each for each in self.findings.claims if each.required and self.settings.known]
        return [(each.claim, "not shown" if each.holds is None else each.word, each.evidence) for each in claims]

    @property
    def failed(self) -> list[str]:
        """List the claims that must hold and were not shown to."""
        return [claim for claim, answer, _ in self.required if answer != "holds"]

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        if self.problem:
            yield from (f"{self.study.name}: could not be run", self.problem)
            return
        yield f"{self.study.name}: {studies.NAMES[self.study.name]}"
        yield f"published counterpart: {self.study.published}"
        yield from self.findings.lines()
        yield f"\n{self.seconds:.0f} s, {self.cpu_seconds:.0f} s of CPU time"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as it is written; times are left out, so that the same study gives the same bytes."""
        settings, name = self.settings, self.study.name
        if self.problem:
            return {"study": name, "problem": self.problem}
        return {
            "study": name,
            "shows": studies.NAMES[name],
            "published": self.study.published,
            "models": [part.model_dump() for part in settings.models],
            **{role: getattr(settings, role).model_dump() for role in ("data", "generator", "oracle")},
            **{key: getattr(settings, key) for key in ("size", "images", "seed")},
            "search": dict(settings.search),
            "options": dict(settings.options),
            "known": settings.known,
            **self.findings.to_dict(),
        }


def run(name: str, base: StudySettings, runs: Runs | None = None) -> StudyReport:
    """Run one study and write NAME.json into its folder."""
    study = studies.load(name)
    settings = replace(base, options=_check(study, base.options)).complete(study)
    runs = (runs or Runs(settings)).under(settings)
    began, worked = time.monotonic(), time.process_time()
    findings = study.run(runs)
    synchronize(settings.device)
    report = StudyReport(study, settings, findings, time.monotonic() - began, time.process_time() - worked)
    write(settings.folder / f"{name}.json", report.to_dict())
    return report


def run_all(names: Sequence[str], base: StudySettings, runs: Runs | None = None) -> Iterator[StudyReport]:
    """Run several studies that share their runs; one that fails does not keep the others from running."""
    runs = runs or Runs(base)
    for name in names:
        try:
            yield run(name, base, runs)
        except CounterfoilError as error:
            yield StudyReport(studies.load(name), base, problem=str(error))


def _check(study: Study, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the types of their defaults."""
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if key not in study.options:
            known = ", ".join(study.options) or "none of its own"
            raise BadSpec(f"--set {key}: {study.name} has no such option; it has {known}, and those of a run's search")
        default = study.options[key]
        several = isinstance(default, tuple)
        item = type((*default, "")[0] if several else default)
        try:
            if several:
                values = value if isinstance(value, list | tuple) else str("" if value is None else value).split(",")
                values = [each for each in values if each != ""]
                checked[key] = tuple(each if isinstance(each, Mapping) else item(each) for each in values)  # a part
            else:
                checked[key] = value if default is None else item(value)
        except (TypeError, ValueError):
            example = ",".join(map(str, default)) if several else default
            wanted = f"a {'list of ' if several else ''}{item.__name__}"
            raise BadSpec(f"--set {key}={value!r}: takes {wanted}, as in {key}={example}") from None
    return checked


def summary(reports: Mapping[str, StudyReport], names: Sequence[str]) -> Table:
    """Return what must hold, study by study in the order of `names`; those without a report were not tested."""
    rows: list[list[Cell]] = []
    for name in names:
        nothing: tuple[str, str, str] = (
            ("nothing is required; its numbers are above", "reported", "") if name in reports else ("", "not tested", "")
        )
        found = (reports[name].required if name in reports else []) or [nothing]
        rows += [[name, *each] for each in found]
    return Table([Column(title, "text") for title in ("study", "what must hold", "answer", "evidence")], rows)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write findings as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with writing(path):
        write_whole(path, text.encode())
