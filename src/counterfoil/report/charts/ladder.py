"""Where accuracy goes: from clean images through both controls to the search, and what each rung is charged to."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from counterfoil.report.charts.marks import mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, tag
from counterfoil.report.numbers import Number, decimal, number

RUNGS = (
    ("SA_matched", "Clean images", "", "clean"),
    ("PA_reconstruction", "Plain reconstruction", "the generator", "plain"),
    ("PA_random", "Random steps", "distance alone", "random"),
    ("PA", "Guided steps", "the search: charged to the model", "guided"),
)


def ladder(results: Mapping[str, Any], *, name: str) -> Figure | None:
    """The chart for one run, on its accepted images; None if there is nothing to show."""
    rungs = [(title, charged, colour, number(results, key)) for key, title, charged, colour in RUNGS]
    rungs = [rung for rung in rungs if rung[3].value is not None]
    if len(rungs) < 2:
        return None
    lost = [""] + [_lost(before[3], after[3]) for before, after in pairwise(rungs)]

    def draw(width: int) -> Markup:
        wide = width > 500
        row = 44 if wide else 64
        box = Box(width, row * len(rungs) + 30, left=150 if wide else 8, right=396 if wide else 16, top=4, bottom=26)
        scale = Scale(0, 100, box.left, box.plot_right)
        parts = [_axis(box, scale)]
        for index, ((title, charged, colour, found), drop) in enumerate(zip(rungs, lost, strict=True)):
            middle = box.top + row * index + (row / 2 if wide else row - 18)
            value = scale(found.value or 0)
            parts.append(
                tag("rect", x=box.left, y=middle - 9, width=max(value - box.left, 0.5), height=18, rx=2, class_=f"bar {colour}")
            )
            parts.append(whisker(found, scale, middle, "over"))
            parts.append(mark("disc", value, middle, "over", size=3.5))
            text = f"{drop}, {charged}" if drop else ""
            if wide:
                parts.append(label(title, box.left - 12, middle + 5, anchor="end"))
                parts.append(label(f"{found.text} %", box.plot_right + 68, middle + 5, anchor="end", kind="strong"))
                parts.append(label(text, box.plot_right + 84, middle + 5, kind="faint"))
            else:
                parts.append(label(f"{title}: {found.text} %", box.left, middle - 30))
                parts.append(label(text, box.left, middle - 14, kind="faint"))
        return drawing(box, *parts)

    return figure(
        name,
        "Where the accuracy goes",
        description="Accuracy on the accepted images: "
        + "; ".join(f"{title.lower()} {found.text} % ({found.interval})" for title, _, _, found in rungs)
        + ".",
        draw=draw,
        head=("", "accuracy, %", "95 % interval", "change", "charged to"),
        rows=[
            (title, found.text, found.interval, drop, charged)
            for (title, charged, _, found), drop in zip(rungs, lost, strict=True)
        ],
    )


def _lost(before: Number, after: Number) -> str:
    change = (after.value or 0) - (before.value or 0)
    return f"{'+' if change > 0.049 else ''}{decimal(change)} points"


def _axis(box: Box, scale: Scale) -> Markup:
    parts = []
    for value in (0, 25, 50, 75, 100):
        parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid"))
        parts.append(label(f"{value}", scale(value), box.height - 8, anchor="middle", kind="faint"))
    return Markup("").join(parts)
