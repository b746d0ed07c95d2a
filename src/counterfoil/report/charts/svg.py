"""The little SVG the charts need: escaped elements, a linear scale, and figures in two widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

WIDE, NARROW = 760, 340  # widths a chart is drawn in: for desks and paper, and for phones


@dataclass(frozen=True)
class Box:
    """A drawing's size and the margins around its plot."""

    width: float
    height: float
    left: float
    right: float
    top: float = 8
    bottom: float = 34

    @property
    def plot_right(self) -> float:
        return self.width - self.right

    @property
    def plot_bottom(self) -> float:
        return self.height - self.bottom


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to places between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        clipped = min(max(value, self.low), self.high)
        return self.start + (clipped - self.low) / span * (self.end - self.start)


@dataclass(frozen=True)
class Figure:
    """A chart with what stands in for it when it cannot be seen."""

    name: str  # unique on a page
    title: str
    description: str  # what the picture shows, in words
    wide: Markup
    narrow: Markup
    head: Sequence[str]  # of the table with the same numbers
    rows: Sequence[Sequence[str]]


def figure(
    name: str, title: str, *, description: str, draw: Callable[[int], Markup], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Figure:
    """Draw a chart in both widths."""
    return Figure(name, title, description, draw(WIDE), draw(NARROW), head, rows)


def tag(name: str, *content: str | Markup, **attributes: object) -> Markup:
    """An element; `class_` becomes class and underscores become hyphens. Text and values are escaped."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"' for key, value in attributes.items())
    inner = Markup("").join(content)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def drawing(box: Box, *content: Markup) -> Markup:
    """A whole drawing. Its title and description stand beside it in the page, so readers aloud skip the shapes."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {_text(box.width)} {_text(box.height)}",
        width=box.width,
        height=box.height,
        aria_hidden="true",
    )


def label(text: str, x: float, y: float, *, anchor: str = "start", kind: str = "") -> Markup:
    """A line of text with its baseline at y."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=f"chart-text {kind}".strip())


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def shortened(text: str, width: float, *, size: float = 13) -> str:
    """`text`, without its middle where it is wider than about `width` pixels: names of a series differ at their ends.

    Letters outside Latin are counted as wide.
    """
    widths = [size * (0.54 if letter < "\u0250" else 1.0) for letter in text]
    if sum(widths) <= width:
        return text
    first, last = 1, len(text) - 1
    room = width - size - widths[0] - widths[-1]
    while first < last:
        at_start = sum(widths[:first]) <= sum(widths[last:])
        room -= widths[first if at_start else last - 1]
        if room < 0:
            break
        first, last = (first + 1, last) if at_start else (first, last - 1)
    return f"{text[:first].rstrip()}…{text[last:].lstrip()}"


def apart(places: Sequence[float], *, least: float, low: float, high: float) -> list[float]:
    """The places moved as little as needed so that labels at least `least` apart don't cover each other."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    if order and moved[order[-1]] > high:
        moved[order[-1]] = high
        for before, after in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
            moved[before] = max(low, min(moved[before], moved[after] - least))
    return moved


def ticks(high: float, *, wide: bool) -> list[float]:
    """Round places along a percentage axis that ends at `high`."""
    step = 20 if wide else 25 if high <= 100 else 50
    return [float(value) for value in range(0, int(high) + 1, step)]


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
