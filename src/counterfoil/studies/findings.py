"""What a study found: tables of estimates, and claims with whether the numbers bear them out. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.metrics.estimate import Estimate


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
    assert higher.low is not None and lower.high is not None and higher.high is not None and lower.low is not None
    holds = True if higher.low > lower.high else False if higher.high < lower.low else None
    return Check(claim, holds, f"{_text(higher, unit)} against {_text(lower, unit)}", required)


def positive(claim: str, difference: Estimate, *, required: bool = True, unit: str = " points") -> Check:
    """That a difference is above zero, shown by an interval that leaves zero out."""
    if difference.value is None or difference.low is None or difference.high is None:
        return Check(claim, None, f"undefined: {difference.note}", required)
    holds = True if difference.low > 0 else False if difference.high < 0 else None
    return Check(claim, holds, _text(difference, unit, sign=True), required)


def _text(found: Estimate, unit: str, *, sign: bool = False) -> str:
    form = "+.1f" if sign else ".1f"
    return f"{found.value:{form}}{unit} ({found.low:{form}} to {found.high:{form}})".replace("-", "−")
