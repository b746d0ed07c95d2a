"""FMR's tables and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.core.records import Estimate
from counterfoil.metrics.fmr import MEANINGS
from counterfoil.metrics.observations import unit_of
from counterfoil.metrics.tables import Cell, Column, Table, Value, counted


def tables(results: Mapping[str, Any]) -> list[Table]:
    """All numbers with what they say; those that are not defined have the reason in the place of their value."""
    columns = [Column("", "text"), Column("value (95 % interval)"), Column("n"), Column("", "text", wide=True)]
    rows: list[list[Cell]] = []
    for name, meaning in MEANINGS.items():
        if name in results:
            found = Estimate.from_dict(results[name])
            rows.append([name, Value(found, unit_of(name)), found.n, meaning + _unmoved(name, results)])
    return [Table(columns, rows)]


def _unmoved(name: str, results: Mapping[str, Any]) -> str:
    """The images of PA that kept no step, so that what counts there is their reconstruction."""
    unmoved = (results.get("counts") or {}).get("unmoved")
    return f"; {counted(unmoved, 'of them kept', 'of them kept')} no step" if name == "PA" and unmoved else ""
