"""What a study found: tables of estimates, and claims with whether the numbers bear them out. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.verdicts import interval_text


@dataclass(frozen=True)
class Row:
    """One line of a table: what it is about, and its values by column."""

    about: tuple[str, ...]
    values: Mapping[str, Estimate]


@dataclass(frozen=True)
class Table:
    """Estimates under a title. `about` names the columns that say what a row is about."""

    title: str
    about: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of values, in the order in which the rows bring them."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.values))


@dataclass(frozen=True)
class Check:
    """A claim about the numbers. `holds` is None where the images are too few to tell."""

    claim: str
    holds: bool | None
    evidence: str
    required: bool = True
    """Whether it must hold on the lab, where the truth is known; otherwise it is only reported."""

    @property
    def word(self) -> str:
        """The answer in a word or three."""
        return {True: "holds", False: "DOES NOT HOLD", None: "cannot tell"}[self.holds]


@dataclass(frozen=True)
class Findings:
    """Everything a study has to say."""

    tables: tuple[Table, ...]
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As it is written to NAME.json."""
        return {
            "tables": [
                {
                    "title": table.title,
                    "rows": [
                        {
                            **dict(zip(table.about, row.about, strict=True)),
                            **{name: each.to_dict() for name, each in row.values.items()},
                        }
                        for row in table.rows
                    ],
                }
                for table in self.tables
            ],
            "checks": [
                {"claim": each.claim, "holds": each.holds, "required": each.required, "evidence": each.evidence}
                for each in self.checks
            ],
            "notes": list(self.notes),
        }


def apart(claim: str, higher: Estimate, lower: Estimate, *, required: bool = True, unit: str = " %") -> Check:
    """That one number is higher than another, shown by intervals that do not touch."""
    if higher.value is None or lower.value is None:
        missing = higher if higher.value is None else lower
        return Check(claim, None, f"undefined: {missing.note}", required)
    evidence = f"{interval_text(higher, unit=unit)} against {interval_text(lower, unit=unit)}"
    if higher.low is None or higher.high is None or lower.low is None or lower.high is None:
        return Check(claim, None, evidence, required)
    holds = True if higher.low > lower.high else False if higher.high < lower.low else None
    return Check(claim, holds, evidence, required)


def positive(claim: str, difference: Estimate, *, required: bool = True, unit: str = " points") -> Check:
    """That a difference is above zero, shown by an interval that leaves zero out."""
    evidence = interval_text(difference, sign=True, unit=unit)
    if difference.low is None or difference.high is None:
        return Check(claim, None, evidence, required)
    holds = True if difference.low > 0 else False if difference.high < 0 else None
    return Check(claim, holds, evidence, required)
