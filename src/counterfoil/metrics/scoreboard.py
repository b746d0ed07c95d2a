"""Models by tests in one table: value, interval, and the rank that paired tests leave open within each test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from counterfoil.core.errors import UsageError
from counterfoil.metrics.comparison import compare
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import Cell, Column, Table, estimate_text


@dataclass(frozen=True)
class BoardColumn:
    """One thing that models were put to: the same protocol, data and parts, whatever the model; and one number of it."""

    identity: str
    title: str  # as in "FMR, lab:kl"
    measure: Measure


def scoreboard(found: Mapping[BoardColumn, Mapping[str, Observations]], *, alpha: float = 0.05) -> Table:
    """A row per model, a column per test. Ranks are per column; there is no mean over tests, which measure different things."""
    models = list(dict.fromkeys(name for each in found.values() for name in each))
    cells: dict[BoardColumn, dict[str, str]] = {}
    notes = ["In brackets the 95 % interval, behind it the ranks that paired tests within the column leave open."]
    for test, observed in found.items():
        ranks: dict[str, str] = {}
        if len(observed) > 1:
            try:
                ranking = compare(observed, [test.measure], alpha=alpha).rankings[0]
                ranks = {name: ranking.rank(name) for name in observed}
            except UsageError as error:
                notes.append(f"{test.title}: no ranks ({error})")
        cells[test] = {}
        for name, each in observed.items():
            text = estimate_text(each.estimate(test.measure), unit=test.measure.unit)
            cells[test][name] = f"{text} #{ranks[name]}" if name in ranks else text
    rows: list[list[Cell]] = [[name, *(cells[test].get(name, "not run") for test in found)] for name in models]
    columns = [Column("model", "text"), *(Column(test.title, "text") for test in found)]
    less = [test.title for test in found if not test.measure.higher_is_better]
    if less:
        notes.append(f"Less is better: {', '.join(less)}.")
    return Table(columns, rows, title="Models by tests", notes=notes)
