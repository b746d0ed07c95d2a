"""Values with intervals: the mark shows the kind by its shape, so that colour is never needed to tell them apart."""

from __future__ import annotations

from typing import Literal

from markupsafe import Markup

from counterfoil.report.charts.svg import Scale, line, tag
from counterfoil.report.numbers import Number

Shape = Literal["disc", "ring", "diamond", "square", "triangle"]


def mark(shape: Shape, x: float, y: float, colour: str, *, size: float = 5) -> Markup:
    """One value."""
    kind = f"mark {colour}"
    if shape in ("disc", "ring"):
        return tag("circle", cx=x, cy=y, r=size, class_=f"{kind} hollow" if shape == "ring" else kind)
    corners = {
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
    }[shape]
    points = " ".join(f"{x + size * dx:.2f},{y + size * dy:.2f}" for dx, dy in corners)
    return tag("polygon", points=points, class_=f"{kind} hollow" if shape == "diamond" else kind)


def whisker(number: Number, scale: Scale, y: float, colour: str) -> Markup:
    """The interval of a value as a horizontal line with ends."""
    if number.low is None or number.high is None:
        return Markup("")
    low, high = scale(number.low), scale(number.high)
    return Markup("").join(
        [
            line(low, y, high, y, f"whisker {colour}"),
            line(low, y - 4, low, y + 4, f"whisker {colour}"),
            line(high, y - 4, high, y + 4, f"whisker {colour}"),
        ]
    )
