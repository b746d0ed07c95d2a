"""Findings as text: tables lined up, claims with their answers, and the published tables they correspond to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterfoil.core.records import Estimate
from counterfoil.studies.findings import Findings, Table


def lines(findings: Findings, *, title: str, published: str) -> Iterator[str]:
    """Everything a study found, line by line."""
    yield title
    yield f"published counterpart: {published}"
    for table in findings.tables:
        yield ""
        yield from _table(table)
    if findings.notes:
        yield ""
        yield from findings.notes
    if findings.checks:
        yield ""
        width = max(len(each.word) for each in findings.checks)
        yield from (f"{each.word:<{width}}  {each.claim}: {each.evidence}" for each in findings.checks)


def _table(table: Table) -> Iterator[str]:
    yield f"{table.title}  (value, 95 % interval, n)"
    body = [[*row.about, *(_cell(row.values.get(name)) for name in table.columns)] for row in table.rows]
    yield from aligned([[*table.about, *table.columns], *body])


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as lines, columns lined up."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()


def _cell(found: Estimate | None) -> str:
    if found is None:
        return ""
    if found.value is None:
        return f"– ({found.note})"
    digits = 1 if max(abs(found.value), abs(found.low or 0), abs(found.high or 0)) > 1.5 else 2
    text = f"{found.value:.{digits}f}"
    if found.low is None or found.high is None:
        text += f" ({found.note})"
    elif found.low != found.high:
        text += f" ({found.low:.{digits}f} to {found.high:.{digits}f})"
    return f"{text}, {found.n}".replace("-", "−")
