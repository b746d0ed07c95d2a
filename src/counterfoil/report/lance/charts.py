"""The charts of a LANCE page: drop by factor, classes against factors, and the funnel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from counterfoil.report.charts.marks import Shape, mark, whisker
from counterfoil.report.charts.svg import Box, Figure, Scale, drawing, figure, label, line, shortened, tag
from counterfoil.report.numbers import Number, decimal, number

MOST_CLASSES = 40
SHAPES: tuple[Shape, ...] = ("disc", "diamond", "square", "triangle", "ring")
STAGES = {
    "sources": "source pictures",
    "captions": "captions",
    "edits": "edits of captions",
    "inversions": "inversions",
    "pictures": "edited pictures",
    "quality": "quality control",
    "oracle": "oracle",
}


def by_factor(models: Mapping[str, Mapping[str, Any]], *, name: str) -> Figure | None:
    """Accuracy lost to each factor, for one model or several: `{model: {factor: entry}}`."""
    first = next(iter(models.values()), {})
    order = sorted({factor for found in models.values() for factor in found}, key=lambda each: -_drop(first, each))
    if not order:
        return None
    numbers = {(model, factor): number(found.get(factor), "drop") for model, found in models.items() for factor in order}
    known = [each for each in numbers.values() if each.value is not None]
    low = min([0.0, *(each.low for each in known if each.low is not None)])
    high = max([10.0, *(each.high for each in known if each.high is not None)])
    low, high = math.floor(low / 10) * 10, math.ceil(high / 10) * 10

    def draw(width: int) -> Markup:
        wide = width > 500
        row = (26 if wide else 40) + 18 * (len(models) - 1)
        legend = 22 * (math.ceil(len(models) / (3 if wide else 1))) if len(models) > 1 else 0
        box = Box(width, legend + row * len(order) + 40, left=120 if wide else 16, right=20, top=legend + 6, bottom=34)
        scale = Scale(low, high, box.left, box.plot_right)
        parts = [_legend(list(models), box.left, wide=wide)] if len(models) > 1 else []
        step = 10 if high - low <= 60 else 20 if high - low <= 120 or wide else 50
        for value in range(math.ceil(low / step) * step, int(high) + 1, step):  # so that zero is one of them
            parts.append(line(scale(value), box.top, scale(value), box.plot_bottom, "grid strong" if value == 0 else "grid"))
            parts.append(label(decimal(value).removesuffix(".0"), scale(value), box.height - 14, anchor="middle", kind="faint"))
        for index, factor in enumerate(order):
            top = box.top + row * index
            parts.append(
                label(factor, box.left - 12, top + row / 2 + 4, anchor="end") if wide else label(factor, box.left, top + 14)
            )
            for place, model in enumerate(models):
                found = numbers[model, factor]
                y = top + row / 2 + 18 * (place - (len(models) - 1) / 2) + (0 if wide else 8)
                if found.value is not None:
                    colour = f"series-{place % 8 + 1}" if len(models) > 1 else "guided"
                    parts.append(whisker(found, scale, y, colour))
                    parts.append(mark(SHAPES[place % len(SHAPES)], scale(found.value), y, colour))
            if index:
                parts.append(line(8, top, box.plot_right, top, "grid"))
        return drawing(box, *parts)

    told = {model: "; ".join(f"{factor} {_spoken(numbers[model, factor])}" for factor in order) for model in models}
    spoken = ". ".join(f"{model}: {text}" if len(models) > 1 else text for model, text in told.items())
    return figure(
        name,
        "Accuracy lost to each factor",
        description=f"Accuracy on the sources less accuracy on their edits, in points, with 95 % intervals. {spoken}.",
        draw=draw,
        head=("factor", "model", "drop, points", "95 % interval", "edits"),
        rows=[
            (factor, model, found.text, found.interval, str(found.n if found.n is not None else "–"))
            for (model, factor), found in numbers.items()
        ],
    )


def heat_map(per_class: Mapping[str, Any], factors: Sequence[str], *, name: str) -> Figure | None:
    """Accuracy lost, class by factor: the darker, the more."""
    rows = [(title, {each: number(entry["factors"].get(each), "drop") for each in factors}) for title, entry in per_class.items()]
    known = [(title, factor, each.value) for title, row in rows for factor, each in row.items() if each.value is not None]
    if not known:
        return None
    rows.sort(key=lambda row: -max((each.value for each in row[1].values() if each.value is not None), default=-math.inf))
    drawn = rows[:MOST_CLASSES]

    def draw(width: int) -> Markup:
        wide = width > 500
        left, head, row = (150 if wide else 84), 34, 30
        box = Box(width, head + row * len(drawn) + 8, left=left, right=8, top=head, bottom=8)
        cell = (box.plot_right - left) / len(factors)
        parts = [
            label(shortened(factor, cell - 4), left + cell * (at + 0.5), head - 10, anchor="middle", kind="faint")
            for at, factor in enumerate(factors)
        ]
        for index, (title, found) in enumerate(drawn):
            y = box.top + row * index
            parts.append(label(shortened(title, left - 14), left - 10, y + row / 2 + 4, anchor="end"))
            for at, factor in enumerate(factors):
                parts.append(_cell(found[factor], left + cell * at, y, cell - 3, row - 3))
        return drawing(box, *parts)

    top_class, top_factor, top = max(known, key=lambda item: item[2])
    more = f" The {MOST_CLASSES} classes with the largest drops are drawn." if len(rows) > MOST_CLASSES else ""
    return figure(
        name,
        "Classes and factors",
        description="Accuracy lost in points; empty where no edit was accepted. "
        f"Largest: {top_class}, {top_factor}, {decimal(top)}. Single cells rest on few edits.{more}",
        draw=draw,
        head=("class", *(f"{factor}, points (edits)" for factor in factors)),
        rows=[(title, *(f"{each.text} ({each.n or 0})" for each in found.values())) for title, found in drawn],
    )


def funnel(entries: Sequence[Mapping[str, Any]], *, name: str) -> Figure | None:
    """How much of what came into each stage went on."""
    found = [entry for entry in entries if entry.get("in")]
    if not found:
        return None

    def draw(width: int) -> Markup:
        wide = width > 500
        row = 34 if wide else 52
        box = Box(width, row * len(found) + 12, left=150 if wide else 8, right=100 if wide else 8, top=4, bottom=8)
        full = box.plot_right - box.left
        parts = []
        for index, entry in enumerate(found):
            y, share = box.top + row * index, entry["kept"] / entry["in"]
            title, said = STAGES.get(entry["stage"], entry["stage"]), f"{entry['kept']:,} of {entry['in']:,}"
            top = y + (6 if wide else 24)
            parts.append(tag("rect", x=box.left, y=top, width=full, height=18, rx=3, class_="bar-ground"))
            parts.append(tag("rect", x=box.left, y=top, width=full * share, height=18, rx=3, class_="bar clean"))
            if wide:
                parts.append(label(title, box.left - 12, y + 20, anchor="end"))
                parts.append(label(said, box.plot_right + 10, y + 20, kind="faint"))
            else:
                parts.append(label(f"{title}: {said}", box.left, y + 18))
        return drawing(box, *parts)

    lost = max(found, key=lambda entry: entry["in"] - entry["kept"])
    return figure(
        name,
        "What went on, stage by stage",
        description=f"Each bar is what came into a stage; the filled part went on. Most was lost at: "
        f"{STAGES.get(lost['stage'], lost['stage'])} ({lost['in'] - lost['kept']:,}).",
        draw=draw,
        head=("stage", "in", "went on", "turned away"),
        rows=[
            (
                STAGES.get(entry["stage"], entry["stage"]),
                f"{entry['in']:,}",
                f"{entry['kept']:,}",
                ", ".join(f"{count:,} {check}" for check, count in entry["turned_away"].items()) or "none",
            )
            for entry in found
        ],
    )


def _cell(found: Number, x: float, y: float, width: float, height: float) -> Markup:
    if found.value is None:
        return tag("rect", x=x, y=y, width=width, height=height, rx=3, class_="heat-none")
    level = min(max(round(found.value / 10), 0), 10)
    box = tag("rect", x=x, y=y, width=width, height=height, rx=3, class_=f"heat heat-{level}")
    dark = " on-dark" if level >= 6 else ""
    text = decimal(found.value).removesuffix(".0") if width > 30 else f"{found.value:.0f}"
    return Markup("").join([box, label(text, x + width / 2, y + height / 2 + 4.5, anchor="middle", kind=f"heat-text{dark}")])


def _legend(models: Sequence[str], x: float, *, wide: bool) -> Markup:
    parts = []
    columns = 3 if wide else 1
    for place, model in enumerate(models):
        left, y = x + (place % columns) * 205, 12 + 22 * (place // columns)
        parts.append(mark(SHAPES[place % len(SHAPES)], left + 6, y, f"series-{place % 8 + 1}"))
        parts.append(label(shortened(model, 175 if wide else 290), left + 18, y + 4.5, kind="faint"))
    return Markup("").join(parts)


def _drop(found: Mapping[str, Any], factor: str) -> float:
    value = number(found.get(factor), "drop").value
    return value if value is not None else -1e9


def _spoken(found: Number) -> str:
    return "none" if found.value is None else f"{found.text} ({found.interval})"
