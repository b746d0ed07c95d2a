"""Accuracy against step: how fast it falls under guidance, under random steps, or for several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from counterfoil.report.charts.marks import Shape, mark
from counterfoil.report.charts.svg import Box, Figure, Scale, apart, drawing, figure, label, line, shortened, tag, ticks
from counterfoil.report.collect import Collected
from counterfoil.report.numbers import Number, number

SHAPES: tuple[Shape, ...] = ("disc", "square", "diamond", "triangle")
MOST = 8  # lines that can be told apart; further runs are in the table


@dataclass(frozen=True)
class Series:
    """One line of the chart."""

    title: str
    points: Sequence[tuple[int, Number]]
    colour: str
    shape: Shape


def of_one(results: Mapping[str, Any], *, name: str) -> Figure | None:
    """Guided and random steps of one run, with the level of the plain reconstruction."""
    series = [
        Series("guided", _points(results, "guided"), "guided", "disc"),
        Series("random", _points(results, "random"), "random", "square"),
    ]
    series = [each for each in series if each.points]
    if not series:
        return None
    return _chart(name, series, level=number(results, "PA_reconstruction"))


def of_many(runs: Sequence[Collected], *, name: str) -> Figure | None:
    """The guided steps of several runs."""
    series: list[Series] = []
    for run in runs:
        points = _points(run.results or {}, "guided")
        if points:
            series.append(Series(run.label, points, f"series-{len(series) % MOST + 1}", SHAPES[len(series) % len(SHAPES)]))
    return _chart(name, series, level=Number()) if series else None


def _points(results: Mapping[str, Any], arm: str) -> list[tuple[int, Number]]:
    curve = results.get("curve")
    found = [(int(entry["step"]), number(entry, arm)) for entry in (curve if isinstance(curve, list) else [])]
    return [(step, each) for step, each in found if each.value is not None]


def _chart(name: str, series: Sequence[Series], *, level: Number) -> Figure:
    last = max(step for each in series for step, _ in each.points)
    drawn = series[:MOST]

    def draw(width: int) -> Markup:
        wide = width > 500
        named = max(len(each.title) for each in drawn)
        right = min(max(8.0 * named + 24, 116 if level.value is not None else 60), 220 if wide else 110)
        box = Box(width, 320 if wide else 280, left=44, right=right, top=14, bottom=44)
        across, up = Scale(0, max(last, 1), box.left, box.plot_right), Scale(0, 100, box.plot_bottom, box.top)
        parts = [_axes(box, across, up, last=last, wide=wide)]
        parts += [_band(each, across, up) for each in drawn]
        ends = [(shortened(each.title, right - 16), up(each.points[-1][1].value or 0), each.colour) for each in drawn]
        if level.value is not None:
            parts.append(line(box.left, up(level.value), box.plot_right, up(level.value), "level"))
            ends.append(("reconstruction", up(level.value), "plain"))
        parts += [_line(each, across, up) for each in drawn]
        places = apart([place for _, place, _ in ends], least=16, low=box.top + 6, high=box.plot_bottom - 2)
        parts += [
            label(title, box.plot_right + 10, place + 4.5, kind=colour)
            for (title, _, colour), place in zip(ends, places, strict=True)
        ]
        return drawing(box, *parts)

    steps = sorted({step for each in series for step, _ in each.points})
    table = {each.title: dict(each.points) for each in series}
    spoken = [
        f"{each.title} from {each.points[0][1].text} % to {each.points[-1][1].text} % after {each.points[-1][0]} steps"
        for each in drawn
    ]
    if level.value is not None:
        spoken.append(f"the plain reconstruction is at {level.text} %")
    more = f" The {MOST} first of {len(series)} runs are drawn; the table has all." if len(series) > MOST else ""
    return figure(
        name,
        "Accuracy against step",
        description=f"Share of accepted images the model gets right after each step: {'; '.join(spoken)}.{more}",
        draw=draw,
        head=("step", *(f"{each.title}, % (95 % interval)" for each in series)),
        rows=[(str(step), *(_cell(table[each.title].get(step)) for each in series)) for step in steps],
    )


def _cell(found: Number | None) -> str:
    return f"{found.text} ({found.interval})" if found else "–"


def _axes(box: Box, across: Scale, up: Scale, *, last: int, wide: bool) -> Markup:
    parts = []
    for value in ticks(100, wide=wide):
        parts.append(line(box.left, up(value), box.plot_right, up(value), "grid"))
        parts.append(label(f"{value:.0f}", box.left - 8, up(value) + 4.5, anchor="end", kind="faint"))
    every = max(1, -(-last // (10 if wide else 5)))
    for step in range(0, last + 1, every):
        parts.append(label(str(step), across(step), box.plot_bottom + 18, anchor="middle", kind="faint"))
    parts.append(label("steps taken", (box.left + box.plot_right) / 2, box.height - 6, anchor="middle", kind="faint"))
    return Markup("").join(parts)


def _band(series: Series, across: Scale, up: Scale) -> Markup:
    sides = [
        (across(step), up(each.low), up(each.high))
        for step, each in series.points
        if each.low is not None and each.high is not None
    ]
    if len(sides) < 2:
        return Markup("")
    corners = [(x, high) for x, _, high in sides] + [(x, low) for x, low, _ in reversed(sides)]
    return tag("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_=f"band {series.colour}")


def _line(series: Series, across: Scale, up: Scale) -> Markup:
    places = [(across(step), up(each.value or 0)) for step, each in series.points]
    every = max(1, len(places) // 12)
    marks = [mark(series.shape, x, y, series.colour, size=4) for x, y in places[::every]]
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_=f"curve {series.colour}") + Markup(
        ""
    ).join(marks)
