"""Validation rate by class across runs: whether the oracle lets one model's pictures pass where it stops another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterfoil.report.charts.heat import heat
from counterfoil.report.charts.svg import Figure
from counterfoil.report.collect import Collected
from counterfoil.report.numbers import Number, number

MOST = 24  # classes drawn


def by_class(runs: Sequence[Collected], *, name: str) -> Figure | None:
    """A row a class, a column a run; the classes with the lowest rate come first. None where all have too few images."""
    cells: dict[tuple[str, str], Number] = {}
    for run in runs:
        per_class = (run.results or {}).get("per_class")
        for title, entry in per_class.items() if isinstance(per_class, Mapping) else ():
            if isinstance(entry, Mapping) and not number(entry, "VR").rests_on_few:
                cells[str(title), run.label] = number(entry, "VR")
    lowest: dict[str, float] = {}
    for (title, _), found in cells.items():
        lowest[title] = min(lowest.get(title, 101.0), 101.0 if found.value is None else found.value)
    classes = sorted(lowest, key=lowest.__getitem__)
    some = f" The {MOST} classes with the lowest rate are drawn; the table of classes has all." if len(classes) > MOST else ""
    return heat(
        name,
        "Validation rate by class",
        rows=classes[:MOST],
        columns=[run.label for run in runs],
        cells=cells,
        words=f"Share of each class's images whose picture the oracle accepts, in per cent, a column a run.{some}",
        corner="class",
    )
