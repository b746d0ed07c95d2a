"""FMR with its interval across runs: published and matched, and the random control beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from markupsafe import Markup

from counterfoil.report.charts.marks import Shape, mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, shortened, ticks
from counterfoil.report.numbers import number

KINDS: tuple[tuple[str, str, Shape, str], ...] = (
    ("FMR", "published", "disc", "guided"),
    ("FMR_matched", "matched", "diamond", "guided"),
    ("FMR_random", "random control", "square", "random"),
)
MOST = 200.0  # where the axis ends at the latest; of a few images an interval can reach beyond it
SPOKEN = 6  # runs whose numbers are also put in words


class Named(Protocol):
    """A run, or a result of one: its numbers under a name."""

    @property
    def label(self) -> str: ...

    @property
    def results(self) -> Mapping[str, Any] | None: ...


def forest(runs: Sequence[Named], *, name: str) -> Figure | None:
    """The chart over the runs that have an FMR; None if none has."""
    rows = []
    for run in runs:
        found = [(kind, number(run.results, kind[0])) for kind in KINDS]
        if any(each.value is not None for _, each in found):
            rows.append((run.label, [(kind, each) for kind, each in found if each.value is not None]))
    if not rows:
        return None
    alone, heading = len(rows) == 1, "FMR across models"
    if alone:  # one run: a row for each kind says more than a legend
        heading = "FMR beside its control" if len(runs) == 1 else f"FMR of {rows[0][0]} beside its control"
        rows = [(f"{kind[1]}: {each.text} %", [(kind, each)]) for kind, each in rows[0][1]]
    highest = max((each.high or each.value or 0) for _, found in rows for _, each in found)
    end = min(max(100.0, math.ceil(highest / 10) * 10), MOST)

    def draw(width: int) -> Markup:
        wide = width > 500
        row, head = (66 if wide else 84, 26) if not alone else (32 if wide else 48, 6)
        left = min(max(8.0 * max(len(title) for title, _ in rows), 120), 290) if wide else 8
        box = Box(width, head + row * len(rows) + 34, left=left, right=20, top=head, bottom=30)
        scale = Scale(0, end, box.left, box.plot_right)
        parts = [] if alone else [_legend(box.left, wide=wide)]
        for value in ticks(end, wide=wide):
            parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid strong" if value == 100 else "grid"))
            parts.append(label(f"{value:.0f}", scale(value), box.height - 10, anchor="middle", kind="faint"))
        for index, (title, found) in enumerate(rows):
            top = box.top + row * index
            if wide:
                parts.append(label(shortened(title, box.left - 20), box.left - 14, top + row / 2 + 5, anchor="end"))
            else:
                parts.append(label(shortened(title, width - 16), box.left, top + 18))
            for place, ((_, _, shape, colour), each) in enumerate(found):
                y = top + row / 2 + 15 * (place - (len(found) - 1) / 2) + (0 if wide else 10)
                parts.append(whisker(each, scale, y, colour))
                parts.append(mark(shape, scale(each.value or 0), y, colour))
            if index and not alone:
                parts.append(line(8, top, box.plot_right, top, "grid"))
        return drawing(box, *parts)

    spoken = [
        ("" if alone else f"{title}: ") + ", ".join(f"{kind} {each.words}" for (_, kind, _, _), each in found)
        for title, found in rows
    ]
    more = f"; and {len(rows) - SPOKEN} more in the table" if len(rows) > SPOKEN else ""
    return figure(
        name,
        heading,
        description="FMR in per cent with 95 % intervals; 100 means that all accuracy is kept. "
        + "; ".join(spoken[:SPOKEN])
        + more
        + ".",
        draw=draw,
        head=("which" if alone else "run", *(() if alone else ("which",)), "FMR, %", "95 % interval", "images"),
        rows=[
            (*((kind,) if alone else (title, kind)), each.text, each.interval, str(each.n if each.n is not None else "–"))
            for title, found in rows
            for (_, kind, _, _), each in found
        ],
    )


def _legend(x: float, *, wide: bool) -> Markup:
    parts = []
    for _, title, shape, colour in KINDS:
        parts.append(mark(shape, x + 6, 12, colour))
        parts.append(label(title, x + 18, 16.5, kind="faint"))
        x += 18 + (8.2 if wide else 7.4) * len(title) + 18
    return Markup("").join(parts)
