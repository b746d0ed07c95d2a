"""What a doctor's examination leaves behind: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["mistake", "caution"]
"""`mistake`: the set-up is most likely wrong. `caution`: it works, and there is something to know."""


@dataclass(frozen=True)
class Finding:
    """One thing that is probably wrong, with what speaks for it and what to do."""

    mistake: str  # a short name, such as "channel order"
    says: str
    evidence: str
    remedy: str
    severity: Severity = "mistake"


@dataclass(frozen=True)
class Section:
    """Measured values under a heading, in the order in which they are shown."""

    title: str
    rows: dict[str, str]


@dataclass(frozen=True)
class Diagnosis:
    """Everything an examination found."""

    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether no mistake is suspected."""
        return not any(finding.severity == "mistake" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a JSON file."""
        return {
            "healthy": self.healthy,
            "findings": [vars(finding) for finding in self.findings],
            "sections": {section.title: section.rows for section in self.sections},
        }
