"""Runs studies, writes what they found, one JSON file each, and sums up what must hold where the truth is known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import studies
from counterfoil.core.errors import BadSpec, CounterfoilError
from counterfoil.engine.device import synchronize
from counterfoil.store.files import write_whole, writing
from counterfoil.studies.base import Findings, Study, StudySettings, align
from counterfoil.studies.runs import Runs


@dataclass(frozen=True)
class StudyReport:
    """One study's findings, settings and cost."""

    study: Study
    settings: StudySettings
    findings: Findings
    seconds: float
    cpu_seconds: float

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    @property
    def failed(self) -> list[str]:
        """The claims that must hold where the truth is known and were not shown to; elsewhere nothing must."""
        if not self.settings.known:
            return []
        return [each.claim for each in self.findings.claims if each.required and each.holds is not True]

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        yield f"{self.name}: {studies.NAMES[self.name]}"
        yield f"published counterpart: {self.study.published}"
        yield from self.findings.lines()
        yield f"\n{self.seconds:.0f} s, {self.cpu_seconds:.0f} s of CPU time"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as it is written; times are left out, so that the same study gives the same bytes."""
        settings = self.settings
        return {
            "study": self.name,
            "shows": studies.NAMES[self.name],
            "published": self.study.published,
            "models": [part.model_dump() for part in settings.models],
            **{role: getattr(settings, role).model_dump() for role in ("data", "generator", "oracle")},
            "size": settings.size,
            "images": settings.images,
            "seed": settings.seed,
            "search": dict(settings.search),
            "options": dict(settings.options),
            "known": settings.known,
            **self.findings.to_dict(),
        }


@dataclass(frozen=True)
class FailedStudy:
    """A study that could not be run, and why."""

    name: str
    problem: str

    def lines(self) -> Iterator[str]:
        """Yield the problem as text."""
        yield f"{self.name}: could not be run"
        yield self.problem


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


def run_all(names: Sequence[str], base: StudySettings, runs: Runs | None = None) -> Iterator[StudyReport | FailedStudy]:
    """Run several studies that share their runs; one that fails does not keep the others from running."""
    runs = runs or Runs(base)
    for name in names:
        try:
            yield run(name, base, runs)
        except CounterfoilError as error:
            yield FailedStudy(name, str(error))


def _check(study: Study, given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [key for key in given if key not in study.options]
    if unknown:
        known = ", ".join(study.options) or "none of its own"
        raise BadSpec(f"--set {unknown[0]}: {study.name} has no such option; it has {known}, and those of a run's search")
    return {key: _like(study.options[key], key, value) for key, value in given.items()}


def _like(default: Any, key: str, value: Any) -> Any:
    """Convert an option's value to the type of its default."""
    try:
        if not isinstance(default, tuple):
            return type(default)(value) if default is not None else value
        kind = type(default[0]) if default else str
        return tuple(kind(item) for item in (value if isinstance(value, list | tuple) else str(value).split(",")))
    except (TypeError, ValueError):
        wanted = f"a list of {kind.__name__}" if isinstance(default, tuple) else f"a {type(default).__name__}"
        example = ",".join(map(str, default)) if isinstance(default, tuple) else default
        raise BadSpec(f"--set {key}={value!r}: takes {wanted}, as in {key}={example}") from None


@dataclass(frozen=True)
class SummaryLine:
    """One requirement of one study."""

    study: str
    requirement: str
    answer: str
    evidence: str = ""

    @property
    def good(self) -> bool:
        """Tell whether nothing is missing here."""
        return self.answer in ("holds", "reported", "not tested")


def summary(outcomes: Mapping[str, StudyReport | FailedStudy], names: Sequence[str]) -> list[SummaryLine]:
    """Return what must hold, study by study in the order of `names`; those without an outcome were not tested."""
    lines: list[SummaryLine] = []
    for name in names:
        outcome = outcomes.get(name)
        if outcome is None:
            lines.append(SummaryLine(name, "", "not tested"))
        elif isinstance(outcome, FailedStudy):
            lines.append(SummaryLine(name, "", "FAILED", outcome.problem))
        else:
            required = [each for each in outcome.findings.claims if each.required and outcome.settings.known]
            shown = [(each.claim, "not shown" if each.holds is None else each.word, each.evidence) for each in required]
            lines += [
                SummaryLine(name, *each) for each in shown or [("nothing is required; its numbers are above", "reported", "")]
            ]
    return lines


def summary_text(lines: Sequence[SummaryLine]) -> Iterator[str]:
    """Yield the summary as a table; a study's name stands once."""
    rows = [["study", "what must hold", "answer", ""]]
    for place, each in enumerate(lines):
        again = place and lines[place - 1].study == each.study
        rows.append(["" if again else each.study, each.requirement, each.answer, each.evidence])
    yield from align(rows)


def write_summary(path: Path, seed: int, lines: Sequence[SummaryLine]) -> None:
    """Write the summary as JSON."""
    write(path, {"seed": seed, "studies": [asdict(each) for each in lines]})


def write(path: Path, content: dict[str, Any]) -> None:
    """Write findings as JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with writing(path):
        write_whole(path, text.encode())
