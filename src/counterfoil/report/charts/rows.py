"""Values with intervals below each other on one percentage axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from counterfoil.report.charts.marks import Shape, mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, shortened, ticks
from counterfoil.report.numbers import Number

MOST = 200.0  # where the axis ends at the latest

Line = tuple[str, Number, Shape, str]
"""What it is called, its value, and its shape and colour."""


def rows(name: str, title: str, lines: Sequence[Line], *, words: str) -> Figure | None:
    """The chart; None if nothing has a value."""
    lines = [each for each in lines if each[1].value is not None]
    if not lines:
        return None
    highest = max(found.high or found.value or 0 for _, found, _, _ in lines)
    end = min(max(100.0, math.ceil(highest / 10) * 10), MOST)

    def draw(width: int) -> Markup:
        wide = width > 500
        row = 34 if wide else 50
        box = Box(width, 6 + row * len(lines) + 34, left=300 if wide else 8, right=20, top=6, bottom=30)
        scale = Scale(0, end, box.left, box.plot_right)
        parts = []
        for value in ticks(end, wide=wide):
            parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid strong" if value == 100 else "grid"))
            parts.append(label(f"{value:.0f}", scale(value), box.height - 10, anchor="middle", kind="faint"))
        for index, (text, found, shape, colour) in enumerate(lines):
            top = box.top + row * index
            said = f"{text}: {found.text} %"
            if wide:
                parts.append(label(shortened(said, box.left - 20), box.left - 14, top + row / 2 + 5, anchor="end"))
            else:
                parts.append(label(shortened(said, width - 16), box.left, top + 16))
            y = top + row / 2 + (0 if wide else 10)
            parts.append(whisker(found, scale, y, colour))
            parts.append(mark(shape, scale(found.value or 0), y, colour))
        return drawing(box, *parts)

    return figure(
        name,
        title,
        description=words,
        draw=draw,
        head=("", "per cent", "95 % interval", "images"),
        rows=[(text, found.text, found.interval, "–" if found.n is None else str(found.n)) for text, found, _, _ in lines],
    )
