"""Validation rate and accuracy by class, the weakest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from counterfoil.report.charts.marks import Shape, mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, shortened, tag
from counterfoil.report.numbers import FEWEST, Number, number

MOST = 24  # classes drawn; the table has all
PANELS: tuple[tuple[str, str, Shape, str], ...] = (
    ("VR", "accepted by the oracle (VR), %", "diamond", "plain"),
    ("PA", "accuracy after guided steps (PA), %", "disc", "guided"),
)


def by_class(results: Mapping[str, Any], *, name: str) -> Figure | None:
    """The chart for one run; None where no class has images enough."""
    per_class = results.get("per_class")
    if not isinstance(per_class, Mapping) or not per_class:
        return None
    rows = [
        (str(title), number(entry, "VR"), number(entry, "PA")) for title, entry in per_class.items() if isinstance(entry, Mapping)
    ]
    few = sum(row[1].rests_on_few for row in rows)
    rows = [row for row in rows if not row[1].rests_on_few]
    if not rows:
        return None
    rows.sort(key=lambda row: (_or_high(row[2]), _or_high(row[1]), row[0]))
    drawn = rows[:MOST]

    def draw(width: int) -> Markup:
        wide = width > 500
        row, head = (24, 28) if wide else (44, 48)
        box = Box(width, head + row * len(drawn) + 30, left=170 if wide else 8, right=20, top=head, bottom=26)
        gap = 36 if wide else 24
        each_width = (box.plot_right - box.left - gap) / 2
        scales = [
            Scale(0, 100, box.left + index * (each_width + gap), box.left + index * (each_width + gap) + each_width)
            for index in (0, 1)
        ]
        parts = [_panel(box, scale, panel, wide=wide) for scale, panel in zip(scales, PANELS, strict=True)]
        for index, (title, *values) in enumerate(drawn):
            middle = box.top + row * index + (row / 2 if wide else row - 11)
            if wide:
                parts.append(label(shortened(title, box.left - 26), box.left - 12, middle + 4.5, anchor="end"))
            else:
                parts.append(label(shortened(title, width - 30), box.left, middle - 13))
            for scale, found, (_, _, shape, colour) in zip(scales, values, PANELS, strict=True):
                if found.value is None:
                    parts.append(label("none", scale.start + 4, middle + 4.5, kind="faint"))
                    continue
                parts.append(whisker(found, scale, middle, colour))
                parts.append(mark(shape, scale(found.value), middle, colour, size=4.5))
        return drawing(box, *parts)

    some = (
        f" The {MOST} classes with the lowest accuracy are drawn; the table of classes has all {len(rows):,}."
        if len(rows) > MOST
        else ""
    )
    if few:
        every = few + len(rows)
        some += f" Left out for having fewer than {FEWEST} images: {few:,} of {every:,} classes; the table of classes has them."
    lowest = next((row for row in rows if row[2].value is not None), None)
    among = " among those drawn" if few else ""
    spoken = (
        f"Lowest accuracy after guided steps{among}: {shortened(lowest[0], 500)}, {lowest[2].text} %."
        if lowest
        else "No class has an accepted image."
    )
    return figure(
        name,
        "By class",
        description=f"Validation rate and accuracy after guided steps for each class, with 95 % intervals. {spoken}{some}",
        draw=draw,
        head=("class", "VR, %", "95 % interval", "PA, %", "95 % interval"),
        rows=[(title, rate.text, rate.interval, kept.text, kept.interval) for title, rate, kept in drawn],
    )


def _or_high(found: Number) -> float:
    return found.value if found.value is not None else 101.0


def _panel(box: Box, scale: Scale, panel: tuple[str, str, Shape, str], *, wide: bool) -> Markup:
    key, title, _, colour = panel
    parts = [
        tag("rect", x=scale.start, y=box.top, width=scale.end - scale.start, height=box.plot_bottom - box.top, class_="panel")
    ]
    for value in (0, 50, 100) if not wide else (0, 25, 50, 75, 100):
        parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid"))
        parts.append(label(str(value), scale(value), box.height - 8, anchor="middle", kind="faint"))
    heading = title if wide else {"VR": "VR, %", "PA": "PA, %"}[key]
    parts.append(label(heading, scale.start, 18, kind=colour))
    return Markup("").join(parts)
