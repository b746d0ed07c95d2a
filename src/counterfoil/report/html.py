"""Blocks as HTML: tables with drawn intervals and shaded cells, lines, image pairs. No block knows a protocol.

Drawings are SVG in per cent of their cell, so one drawing fits every width and needs no style that the page's policy forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import Cell, Column, Link, Mark, Table, Value, cell_text, minus
from counterfoil.report.page import Code, Downloads, Fold, ImagePairs, Lines, Page, Series, program_version

COLOURS = ("guided", "random", "clean", "plain", "series-5", "series-6", "series-7", "series-8")
SORTABLE = 6  # rows from which a table sorts by its headings
SHADES = 5
STEPS = 10  # labels along a chart


def render(page: Page, *, every: Sequence[Page] = (), brand: str = "robustness report") -> bytes:
    """The page as an HTML file; `every` are the pages of its report, for the way between them."""
    text = (
        environment().get_template("report.html").render(page=page, every=every or [page], brand=brand, version=program_version())
    )
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates of pages that are written as files."""
    return templates_of("counterfoil.report", table=table, lines=lines, kind_of=kind_of, words=words)


def templates_of(package: str, **helpers: Callable[..., Any]) -> Environment:
    """The templates of a package. All that is put into them is escaped, and what they were not given is an error."""
    options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    found = Environment(loader=PackageLoader(package), **options)
    found.globals.update(helpers)
    return found


def kind_of(block: object) -> str:
    """The kind of a block, for the template."""
    kinds = {str: "text", Table: "table", Lines: "lines", ImagePairs: "pairs", Fold: "fold", Code: "code", Downloads: "files"}
    return next(name for kind, name in kinds.items() if isinstance(block, kind))


def words(text: str) -> Markup:
    """Text with non-breaking spaces before units."""
    return escape(text.replace(" %", "\u00a0%"))


def table(content: Table, *, identity: str = "") -> Markup:
    """A table; long ones sort by their headings."""
    sortable = len(content.rows) >= SORTABLE and any(column.title for column in content.columns)
    heads = [_head(column, sortable=sortable) for column in content.columns]
    rows = [
        tag(
            "tr",
            *(_cell(cell, column, first=at == 0) for at, (cell, column) in enumerate(zip(row, content.columns, strict=True))),
        )
        for row in content.rows
    ]
    parts = []
    if content.title:
        parts.append(tag("h3", content.title))
    if content.filter_rows and len(rows) >= SORTABLE:
        field = tag("label", "Find ", tag("input", type="search", class_="table-filter", autocomplete="off"), class_="field grow")
        parts.append(
            tag("div", field, tag("p", f"{len(rows):,} rows", class_="matches", role="status"), class_="filters for-table")
        )
    if rows:
        kind = "sortable" if sortable else ""
        wide = " blocks" if any(column.wide for column in content.columns) else ""
        head = tag("thead", tag("tr", *heads)) if any(column.title for column in content.columns) else Markup("")
        inner = tag("table", head, tag("tbody", *rows), class_=f"{kind}{wide}".strip() or None)
        label = content.title or identity or "Table"
        parts.append(tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=label))
    parts += [tag("p", note, class_="quiet") for note in content.notes if note]
    return tag("div", *parts, class_="table-block")


def lines(chart: Lines) -> Markup:
    """A line chart with bands, as wide as its place."""
    last = max((x for series in chart.series for x, _ in series.points), default=1) or 1
    grid = [tag("line", x1="0", x2="100%", y1=f"{100 - y}%", y2=f"{100 - y}%", class_="grid") for y in range(0, 101, 25)]
    labels = [
        tag("text", str(y), x="0", y=f"{100 - y}%", dx="-8", dy="4", text_anchor="end", class_="chart-text faint")
        for y in range(0, 101, 25)
    ]
    every = max(1, -(-int(last) // STEPS))
    labels += [
        tag("text", str(x), x=_percent(x / last), y="100%", dy="20", text_anchor="middle", class_="chart-text faint")
        for x in range(0, int(last) + 1, every)
    ]
    labels.append(tag("text", chart.across, x="50%", y="100%", dy="40", text_anchor="middle", class_="chart-text faint"))
    shapes = [shape for at, series in enumerate(chart.series) for shape in _curve(series, last, _colour(series, at))]
    ends = _apart([series.points[-1][1].value or 0 for series in chart.series if series.points])
    for at, (series, place) in enumerate(zip([each for each in chart.series if each.points], ends, strict=True)):
        colour = _colour(series, at)
        labels.append(
            tag("text", series.title, x="100%", y=f"{100 - place:.2f}%", dx="10", dy="4", class_=f"chart-text {colour}")
        )
    svg = tag("svg", *grid, *shapes, *labels, width="100%", height="260", aria_hidden="true", class_="lines")
    spoken = "; ".join(_chart_text(series) for series in chart.series if series.points)
    caption = tag("figcaption", tag("h3", chart.title), tag("p", f"{chart.text} {spoken}.".strip(), class_="quiet"))
    return tag("figure", tag("div", svg, class_="plot"), caption, class_="chart")


def tag(name: str, *content: str | Markup, **attributes: object) -> Markup:
    """An element; `class_` becomes class and underscores become hyphens. Text and values are escaped, None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items() if value is not None
    )
    return Markup(f"<{name}{written}>{Markup('').join(content)}</{name}>")


def _head(column: Column, *, sortable: bool) -> Markup:
    kind = "num" if column.kind != "text" and column.axis is None else "drawn" if column.axis else None
    title = Markup("_<wbr>").join(column.title.split("_"))  # long names of numbers may wrap
    sorts = "none" if sortable and column.title else None
    if sorts:
        by = {"text": "text", "rank": "rank"}.get(column.kind, "number")
        title = tag("button", title, type="button", class_="sort", data_kind=by)
    if column.axis is None:
        return tag("th", title, scope="col", class_=kind, aria_sort=sorts)
    low, high = column.axis
    marks = [
        tag("text", f"{low + (high - low) * at / 2:g}", x=_percent(at / 2), y="11", text_anchor=anchor)
        for at, anchor in enumerate(("start", "middle", "end"))
    ]
    scale = tag("span", tag("svg", *marks, width="100%", height="14", class_="ticks", aria_hidden="true"), class_="axis")
    return tag("th", title, scale, scope="col", class_=kind, aria_sort=sorts)


def _cell(cell: Cell, column: Column, *, first: bool) -> Markup:
    name = "th" if first else "td"
    scope = "row" if first else None
    found = cell.found if isinstance(cell, Value) else cell
    value = found.value if isinstance(found, Estimate) else None
    if isinstance(cell, Link):
        return tag(name, _link(cell), scope=scope, data_value=cell.text, class_=None if first or column.kind == "text" else "num")
    if isinstance(cell, tuple):
        low, high = column.axis or (0.0, 100.0)
        named = []
        for each in cell:
            title = tag("span", each.name, class_=f"name {each.colour}")
            named.append(tag("span", title, " ", _numbers(each.found, column), class_="mark-line"))
        drawn = tag("span", _dots(cell, low, high), tag("span", *named, class_="stack"), class_="dots-cell")
        return tag(name, drawn, scope=scope, class_="drawn")
    if isinstance(found, Estimate):
        unit = cell.unit if isinstance(cell, Value) else column.unit
        numbers = _numbers(found, column, unit=unit)
        if isinstance(cell, Value) and cell.rank:
            numbers = tag("span", numbers, " ", tag("span", f"rank {cell.rank}", class_="place"))
        data = "" if value is None else f"{value:.6g}"
        if column.axis is not None and value is not None:
            drawn = tag("span", _dots((Mark("", found),), *column.axis), numbers, class_="dots-cell")
            return tag(name, drawn, scope=scope, class_="drawn", data_value=data)
        shade = _shade(value, column)
        return tag(name, numbers, scope=scope, class_=f"num {shade}".strip(), data_value=data, data_title=column.title or None)
    text = cell_text(cell, column)
    if column.kind == "text":
        return tag(name, tag("bdi", text), scope=scope, data_value=text, class_="meaning" if column.wide else None)
    data = f"{cell:.6g}" if isinstance(cell, int | float) else "" if cell is None else text
    return tag(name, text, scope=scope, class_="num", data_value=data, data_title=column.title or None)


def _numbers(found: Estimate, column: Column, *, unit: str | None = None) -> Markup:
    """A value with its interval in small letters; a reason where one of them is missing."""
    unit = column.unit if unit is None else unit
    if found.value is None:
        return tag(
            "span", tag("span", "–", class_="value"), " ", tag("span", found.note, class_="interval note"), class_="numbers"
        )
    plus = "+" if column.sign else ""
    form = f"{plus}.{column.digits}f"
    value = minus(f"{found.value + 0.0:{form}}{unit}".replace("-0.0", "0.0"))
    some = found.low is not None and found.high is not None
    if some:
        interval = tag("span", minus(f"{found.low:{form}} to {found.high:{form}}"), class_="interval")
    elif column.axis is None:  # a narrow cell: the whole reason would make its row as high as the screen
        interval = tag("span", "no interval", class_="interval note", title=found.note or None)
    else:
        interval = tag("span", found.note or "no interval", class_="interval note")
    return tag("span", tag("span", value, class_="value"), " ", interval, class_="numbers")


def _dots(marks: Sequence[Mark], low: float, high: float) -> Markup:
    """Marks with whiskers on one axis, in per cent of the cell."""
    parts = [tag("line", x1=_percent(at / 4), x2=_percent(at / 4), y1="0", y2="100%", class_="grid") for at in range(5)]
    for place, each in enumerate(marks):
        if each.found.value is None:
            continue
        y = f"{100 * (place + 0.5) / len(marks):.4g}%"
        at = _place(each.found.value, low, high)
        if each.found.low is not None and each.found.high is not None:
            ends = {"x1": _percent(_place(each.found.low, low, high)), "x2": _percent(_place(each.found.high, low, high))}
            parts.append(tag("line", **ends, y1=y, y2=y, class_=f"whisker {each.colour}"))
        parts.append(
            tag("circle", cx=_percent(at), cy=y, r="4.5", class_=f"mark {each.colour}{' hollow' if each.hollow else ''}")
        )
    return tag("svg", *parts, width="100%", height=str(22 * len(marks)), class_="dots", aria_hidden="true")


def _curve(series: Series, last: float, colour: str) -> list[Markup]:
    """A band, a line and its points. Curves are drawn in a square that is stretched; points keep their shape."""
    known = [(x, found) for x, found in series.points if found.value is not None]
    if not known:
        return []
    inner = []
    sides = [(100 * x / last, found.low, found.high) for x, found in known if found.low is not None and found.high is not None]
    if len(sides) > 1:
        corners = [(x, 100 - (high or 0)) for x, _, high in sides] + [(x, 100 - (low or 0)) for x, low, _ in reversed(sides)]
        inner.append(tag("polygon", points=" ".join(f"{x:.2f},{y:.2f}" for x, y in corners), class_=f"band {colour}"))
    points = " ".join(f"{100 * x / last:.2f},{100 - (found.value or 0):.2f}" for x, found in known)
    dash = " dashed" if series.dashed else ""
    inner.append(tag("polyline", points=points, class_=f"curve {colour}{dash}", vector_effect="non-scaling-stroke"))
    whole = tag(
        "svg",
        *inner,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
        overflow="visible",
        aria_hidden="true",
    )
    some = known[:: max(1, len(known) // 12)]
    dots = []
    for x, found in some:
        height = f"{100 - (found.value or 0):.2f}%"
        dots.append(tag("circle", cx=_percent(x / last), cy=height, r="4", class_=f"mark {colour}"))
    return [whole, *dots]


def _chart_text(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    one = Column(unit=" %")
    return f"{series.title}: {cell_text(first[1], one)} at {first[0]:g}, {cell_text(last[1], one)} at {last[0]:g}"


def _link(cell: Link) -> Markup:
    text: str | Markup = tag("bdi", cell.text)
    if cell.to:
        text = tag("a", text, href=cell.to)
    elif cell.show:
        text = tag("button", text, type="button", class_="plain show", data_show=cell.show)
    badges = [tag("span", badge, class_="badge") for badge in cell.badges]
    more = [tag("a", name, href=address) for name, address in cell.more]
    files = [tag("span", *(piece for each in more for piece in (each, Markup(" "))), class_="files")] if more else []
    note = [tag("span", cell.note, class_="hint")] if cell.note else []
    return Markup(" ").join([text, *badges, *files, *note])


def _shade(value: float | None, column: Column) -> str:
    if column.shade is None or value is None:
        return ""
    low, high = column.shade
    return f"shade-{min(SHADES - 1, int(SHADES * _place(value, low, high)))}"


def _place(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _colour(series: Series, at: int) -> str:
    return series.colour or COLOURS[at % len(COLOURS)]


def _apart(values: Sequence[float], *, least: float = 7.0) -> list[float]:
    """Heights of labels, moved as little as needed so that none covers another."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    moved = list(values)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    if order and (over := moved[order[-1]] - 100) > 0:
        for at in order:
            moved[at] -= over * (values[at] > 50)
    return moved
