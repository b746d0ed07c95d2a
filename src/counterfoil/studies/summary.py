"""All studies at a glance: each one's requirement and whether it was shown. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.studies.wording import aligned

if TYPE_CHECKING:
    from counterfoil.studies.runner import Outcome, Report


@dataclass(frozen=True)
class Line:
    """One requirement of one study."""

    study: str
    requirement: str
    answer: str
    evidence: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is missing here."""
        return self.answer in (_SHOWN, _NOTHING, _NOT_RUN)


_SHOWN, _DENIED, _OPEN, _NOTHING, _NOT_RUN, _FAILED = (
    "holds", "DOES NOT HOLD", "not shown", "reported", "not tested", "FAILED",
)  # fmt: skip


def summary(outcomes: Mapping[str, Outcome], names: Sequence[str]) -> list[Line]:
    """What has to hold, study by study in the order of `names`; those without an outcome were not tested."""
    return [line for name in names for line in _lines_of(name, outcomes.get(name))]


def as_text(lines: Sequence[Line]) -> Iterator[str]:
    """The table for people."""
    yield from aligned([["study", "what has to hold on the lab", "answer", ""], *_cells(lines)])


def as_data(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The table as it is written to all.json."""
    return [asdict(each) for each in lines]


def _cells(lines: Sequence[Line]) -> Iterator[list[str]]:
    before = ""
    for each in lines:
        yield [each.study if each.study != before else "", each.requirement, each.answer, each.evidence]
        before = each.study


def _lines_of(name: str, outcome: Outcome | None) -> Iterator[Line]:
    if outcome is None:
        yield Line(name, "", _NOT_RUN)
    elif hasattr(outcome, "problem"):
        yield Line(name, "", _FAILED, outcome.problem)
    else:
        yield from _checked(name, outcome)


def _checked(name: str, report: Report) -> Iterator[Line]:
    required = [each for each in report.findings.checks if each.required] if report.settings.on_the_lab else []
    if not required:
        yield Line(name, "nothing is required; its numbers are above", _NOTHING)
    for each in required:
        yield Line(name, each.claim, {True: _SHOWN, False: _DENIED, None: _OPEN}[each.holds], each.evidence)
