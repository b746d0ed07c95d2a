"""The oracle under audit, as a report tells of it: how far its word goes, and what it may hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.metrics.fmr import AUDIT_MEANINGS
from counterfoil.report.charts.rows import rows
from counterfoil.report.charts.svg import Figure
from counterfoil.report.numbers import Number, number

TITLES = {
    "clean_accuracy": "Oracle right on source images",
    "lost": "Turned away by the oracle",
    "FMR_lost": "FMR if the lost count as wrong",
    "FMR_kept": "FMR if the lost keep their answer",
    "PA_lost": "PA if the lost count as wrong",
    "PA_kept": "PA if the lost keep their answer",
}
"""In the order in which a reader needs them."""

COMPARED = ("clean_accuracy", "lost", "FMR_lost", "FMR_kept")


@dataclass(frozen=True)
class Line:
    """One number of the audit."""

    key: str
    title: str
    found: Number
    meaning: str


def of(results: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The audit in a run's results; empty where there is none."""
    found = (results or {}).get("audit")
    return found if isinstance(found, Mapping) else {}


def lines(results: Mapping[str, Any] | None) -> list[Line]:
    """The numbers of the audit, with what they say; none where no image was decided on."""
    found = of(results)
    every = [Line(key, title, number(found, key), f"{_sentence(key)}.") for key, title in TITLES.items() if key in found]
    return every if any(line.found.value is not None for line in every) else []


def summary(results: Mapping[str, Any] | None) -> str:
    """What the audit comes to, in a sentence or two."""
    found = of(results)
    right, lost = number(found, "clean_accuracy"), number(found, "lost")
    low, high, fmr = number(found, "FMR_lost"), number(found, "FMR_kept"), number(results, "FMR")
    said = []
    if right.value is not None:
        said.append(
            f"The oracle sees the right class in {right.text} % of the source images; where it errs, so does its verdict."
        )
    if lost.value == 0:
        said.append("It turned no image away, so no result is hidden.")
    elif lost.value is not None and low.value is not None and high.value is not None:
        said.append(
            f"It turned {lost.text} % of the images away. FMR says nothing of these: with them it would "
            f"lie between {low.text} and {high.text}{'' if fmr.value is None else f' (published: {fmr.text})'}."
        )
    return " ".join(said)


def bounds(results: Mapping[str, Any] | None, *, name: str) -> Figure | None:
    """FMR between its bounds; None where no image was lost, as then there is but one FMR."""
    found = of(results)
    if not number(found, "lost").value:
        return None
    low, high, fmr = number(found, "FMR_lost"), number(found, "FMR_kept"), number(results, "FMR")
    return rows(
        name,
        "FMR with the images that the oracle turned away",
        [
            ("all lost ones wrong", low, "triangle", "plain"),
            ("as published", fmr, "disc", "guided"),
            ("all lost ones keep their answer", high, "square", "plain"),
        ],
        words=f"FMR in per cent with 95 % intervals: {low.words} if every image that was turned away counts as wrong, "
        + (f"{fmr.words} as published, " if fmr.value is not None else "")
        + f"{high.words} if each keeps the answer on its source.",
    )


def by_class(results: Mapping[str, Any] | None, name: str) -> Number:
    """How often the oracle is right on the source images of a class."""
    classes = of(results).get("per_class")
    entry = classes.get(name) if isinstance(classes, Mapping) else None
    return number(entry, "clean_accuracy") if isinstance(entry, Mapping) else Number()


def _sentence(key: str) -> str:
    meaning = AUDIT_MEANINGS[key]
    return f"{meaning[0].upper()}{meaning[1:]}"
