"""A heat map: a grid of values, each written in its cell, so that shade only repeats what the number says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from markupsafe import Markup

from counterfoil.report.charts.svg import Box, Figure, drawing, figure, label, shortened, tag
from counterfoil.report.numbers import Number

SHADES = 5
MOST = 12  # columns that can be drawn; more are in the table

Key = tuple[str, str]


def heat(
    name: str,
    title: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[Key, Number],
    words: str,
    corner: str,
    framed: frozenset[Key] = frozenset(),
    dark: Literal["low", "high"] = "low",
    ends: tuple[float, float] = (0.0, 100.0),
) -> Figure | None:
    """The chart, rows by columns; `framed` cells get a frame, `dark` says which end is drawn dark. None without a value."""
    if not any(found.value is not None for found in cells.values()):
        return None
    drawn = columns[:MOST]

    def draw(width: int) -> Markup:
        wide = width > 500
        left, head, row = (200, 28, 40) if wide else (8, 26, 60)
        side = (width - left - 8) / max(len(drawn), 1)
        box = Box(width, head + row * len(rows) + 8, left=left, right=8, top=head, bottom=8)
        parts = []
        for place, column in enumerate(drawn):
            middle = left + side * (place + 0.5)
            parts.append(label(shortened(column, side - 6, size=12), middle, head - 10, anchor="middle", kind="faint"))
        for index, title_of_row in enumerate(rows):
            top = head + row * index
            cell_top, height = (top, row - 4) if wide else (top + 22, row - 28)
            if wide:
                parts.append(label(shortened(title_of_row, left - 20), left - 12, top + row / 2 + 3, anchor="end"))
            else:
                parts.append(label(shortened(title_of_row, width - 16), left, top + 16))
            for place, column in enumerate(drawn):
                found = cells.get((title_of_row, column), Number())
                x = left + side * place
                shade = _shade(found, ends, dark)
                frame = " framed" if (title_of_row, column) in framed else ""
                parts.append(
                    tag("rect", x=x + 2, y=cell_top, width=side - 4, height=height, rx=3, class_=f"heat heat-{shade}{frame}")
                )
                kind = f"heat-text heat-text-{shade}"
                parts.append(label(found.text, x + side / 2, cell_top + height / 2 + 4.5, anchor="middle", kind=kind))
        return drawing(box, *parts)

    more = f" The first {MOST} of {len(columns)} columns are drawn; the table has all." if len(columns) > MOST else ""
    return figure(
        name,
        title,
        description=words + more,
        draw=draw,
        head=(corner, *columns),
        rows=[(row, *(_cell(cells.get((row, column))) for column in columns)) for row in rows],
    )


def _shade(found: Number, ends: tuple[float, float], dark: Literal["low", "high"]) -> str:
    """A number from 0, light, to SHADES − 1, dark; `none` without a value."""
    if found.value is None:
        return "none"
    low, high = ends
    share = min(max((found.value - low) / ((high - low) or 1), 0), 1)
    share = 1 - share if dark == "low" else share
    return str(min(int(share * SHADES), SHADES - 1))


def _cell(found: Number | None) -> str:
    return "–" if found is None or found.value is None else found.words
