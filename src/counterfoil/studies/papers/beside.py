"""A published table with runs beside it. The two never share a column, and every run says what its set-up does differently."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.metrics.significance import kendall
from counterfoil.metrics.verdicts import interval_text
from counterfoil.studies.papers.ours import Row, same_words
from counterfoil.studies.papers.tables import Cell, Paper, Published

_NONE = "–"


def lines(paper: Paper, table: Published, ours: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """The table as text. `ours` pairs each row of a run with the published model it stands for, or with nothing."""
    yield f"Table {table.number}: {table.title}"
    yield f"published by {paper.authors}"
    yield ""
    placed, other = _placed(table, ours)
    marks: dict[str, str] = {}
    body = [_line(table, place, placed.get(place), marks) for place in range(len(table.rows))]
    body += [_line(table, None, row, marks) for row in other]
    yield from _grid(table, body, with_ours=bool(ours))
    yield from _below(table, marks)


def _placed(table: Published, ours: Sequence[tuple[str, Row]]) -> tuple[dict[int, Row], list[Row]]:
    """Which published row each of ours goes beside; the rest, and a second one for the same place, follow below."""
    placed: dict[int, Row] = {}
    other: list[Row] = []
    for meant, row in ours:
        places = [place for place in range(len(table.rows)) if _matches(table.row(place), row, meant)]
        names = dict.fromkeys(str(table.row(place)["model"]) for place in range(len(table.rows)))
        if meant and meant.lower() not in map(str.lower, names):
            raise UsageError(f"{meant!r}: no such row in Table {table.number}; it has {', '.join(names)}")
        if len(places) > 1:  # the same model on several data sets
            places = [place for place in places if same_words(str(table.row(place)["data"]), row.labels["data"])]
        if len(places) == 1 and places[0] not in placed:
            placed[places[0]] = row
        else:
            other.append(row)
    return placed, other


def _matches(published: dict[str, Cell], row: Row, meant: str) -> bool:
    if meant:
        same = str(published.get("model", "")).lower() == meant.lower()
    else:
        same = same_words(str(published.get("model", "")), row.labels["model"])
    for column in ("made against", "generator", "class"):
        if column in published:
            same = same and same_words(str(published[column]), row.labels[column])
    return same


Line = tuple[list[str], list[str], list[str], str]
"""What the row is about, the published values, our values, and the marks of what differs."""


def _line(table: Published, place: int | None, row: Row | None, marks: dict[str, str]) -> Line:
    published = {} if place is None else table.row(place)
    about = [str(published[column]) if published else (row.labels[column] if row else "") for column in table.labels]
    values = [_NONE if place is None else _published(table, place, column) for column in table.numbers]
    if row is None:
        return about, values, [""] * len(table.numbers), ""
    found = [_ours(row.values.get(column)) for column in table.numbers]
    differs = [f"data {row.labels['data']}, {row.values['SA'].n} images (published: {published.get('data', 'none such')})"]
    for column in ("model", "made against") if published else ():
        if column in published and not same_words(str(published[column]), row.labels[column]):
            differs.append(f"{column} {row.labels[column]} (published: {published[column]})")
    differs += row.differs
    return about, values, found, " ".join(_mark(marks, text) for text in differs)


def _published(table: Published, place: int, column: str) -> str:
    index = table.columns.index(column)
    digits = max(len(str(row[index]).partition(".")[2]) for row in table.rows)  # JSON drops zeros at the end
    star = "*" * any(each.row == place and each.column == column for each in table.elsewhere)
    return f"{float(table.rows[place][index]):.{digits}f}{star}"


def _ours(found: Estimate | None) -> str:
    return _NONE if found is None else interval_text(found)


def _mark(marks: dict[str, str], text: str) -> str:
    if text not in marks:
        letters = (first + second for first in ("", *string.ascii_lowercase) for second in string.ascii_lowercase)
        marks[text] = next(letter for letter in letters if letter not in marks.values())
    return marks[text]


def _grid(table: Published, body: list[Line], *, with_ours: bool) -> Iterator[str]:
    """Columns lined up, under one heading for the published values and one for ours."""
    about, numbers = len(table.labels), len(table.numbers)
    heads = [*table.labels, *table.numbers, *(table.numbers if with_ours else []), *(["differs"] if with_ours else [])]
    rows = [[*labels, *published, *([*ours, differs] if with_ours else [])] for labels, published, ours, differs in body]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    start = sum(widths[:about]) + 2 * about
    middle = start + sum(widths[about : about + numbers]) + 2 * numbers
    titles = f"{'':<{start}}{'published':<{middle - start}}{'our runs (95 % interval)' if with_ours else ''}"
    for row in ([titles], heads, *rows):
        cells = row if len(row) == 1 else [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _below(table: Published, marks: dict[str, str]) -> Iterator[str]:
    """Contradictions, notes, agreement of the published orders, and what differs."""
    if table.elsewhere:
        yield ""
        yield "* the paper has other values too:"
        for each in table.elsewhere:
            row = table.row(each.row)
            about = ", ".join(str(row[label]) for label in table.labels)
            yield f"  {about}: {each.column} {each.value:g} in {each.where}"
    for note in table.notes:
        yield ""
        yield note
    if table.kind == "generators":
        yield ""
        yield from _published_agreement(table)
    if marks:
        yield ""
        yield "Our runs differ from the published ones; the numbers are not for the same test:"
        for text, letter in marks.items():
            yield f"  {letter}  {text}"


def _published_agreement(table: Published) -> Iterator[str]:
    generators = dict.fromkeys(str(table.row(place)["generator"]) for place in range(len(table.rows)))
    values = {
        name: np.array([float(row["FMR"]) for row in map(table.row, range(len(table.rows))) if row["generator"] == name])
        for name in generators
    }
    yield "Kendall's tau between the published orders of models, by FMR (no intervals: the paper gives no counts):"
    for one, two in combinations(generators, 2):
        yield f"  {one} against {two}: {float(kendall(values[one], values[two])):.2f}"
