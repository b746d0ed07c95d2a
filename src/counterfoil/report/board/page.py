"""The board's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from jinja2 import Environment

from counterfoil.report import wording
from counterfoil.report.board.tables import RANKED, Row, Table
from counterfoil.report.charts import forest, rows
from counterfoil.report.charts.svg import Figure, shortened
from counterfoil.report.making import text
from counterfoil.report.numbers import count
from counterfoil.report.page import program_version
from counterfoil.report.templating import templates_of

COLUMNS = {"fmr": ("FMR_matched", "FMR", "SA", "PA", "VR"), "imagenet-d": ("PA", "SA")}
HEADS = {
    "imagenet-d": {"PA": "Accuracy on the set,\u00a0%", "SA": "Accuracy before mining,\u00a0%"},
    "fmr": {name: f"{name.replace('_', ' ')},\u00a0%" for name in COLUMNS["fmr"]},
}
RANKS = {"FMR_matched": "Rank by matched FMR", "FMR": "Rank by FMR", "PA": "Rank by accuracy"}
APART = 3  # settings named in a heading
SPOKEN = 6  # models whose numbers are also put in words
_FIRST = ("painter.name", "grid", "data.name", "generator.name", "oracle.name")


def render(tables: Sequence[Table], *, title: str) -> str:
    """The page as HTML."""
    return (
        _environment()
        .get_template("board.html")
        .render(
            title=title,
            tables=tables,
            headings=headings(tables),
            results=sum(len(table.rows) for table in tables),
            columns=COLUMNS,
            heads=HEADS,
            ranked=RANKED,
            rank_titles=RANKS,
            meanings=[(key, wording.TITLES[key]) for key in COLUMNS["fmr"]],
            version=program_version(),
        )
    )


def headings(tables: Sequence[Table]) -> dict[str, str]:
    """What each test was, in a line, by its identity: data, generator, oracle, and what tells it from others with the same."""
    said = {table.identity: _parts(table) for table in tables}
    for line in {line for line in said.values() if list(said.values()).count(line) > 1}:
        alike = [table for table in tables if _parts(table) == line]
        known = [
            {**dict(settings(table)), "classes": f"{table.test.classes:,} ({table.test.classes_sha256[:6]})"} for table in alike
        ]
        apart = [key for key in known[0] if len({each.get(key) for each in known}) > 1][:APART]
        for table, each in zip(alike, known, strict=True):
            said[table.identity] = " · ".join([line, *(f"{key} {shortened(each.get(key, 'none'), 200)}" for key in apart)])
    return said


def _parts(table: Table) -> str:
    return " · ".join(text(table.test.settings[key]) for key in _FIRST if isinstance(table.test.settings.get(key), str))


def settings(table: Table) -> Iterator[tuple[str, str]]:
    """The settings of the test, those a reader asks for first at the top."""
    own = table.test.settings
    for key in (*(key for key in _FIRST if key in own), *(key for key in sorted(own) if key not in _FIRST)):
        yield key, text(own[key])
    yield "classes", f"{table.test.classes:,} (names: {table.test.classes_sha256})"


def chart(table: Table) -> Figure | None:
    """What the table's models are ranked by, with intervals."""
    if table.protocol == "fmr":
        return forest.forest(table.rows, name=f"fmr-{table.identity}")
    lines: list[rows.Line] = [
        (row.label, row.number("PA"), "ring" if "surrogate" in row.marks else "disc", "plain" if row.marks else "guided")
        for row in table.rows
    ]
    words = "Accuracy on the set in per cent, with 95 % intervals; surrogates have a ring: " + "; ".join(
        f"{title} {found.words}" for title, found, _, _ in lines[:SPOKEN]
    )
    return rows.rows(f"accuracy-{table.identity}", "Accuracy on the set", lines, words=f"{words}.")


def speed(row: Row) -> str:
    """Pictures a second, with few digits."""
    found = row.entry.speed.images_per_second if row.entry.speed else None
    return "–" if found is None else f"{found:,.0f}" if found >= 10 else f"{found:.1f}"


def machine(row: Row) -> str:
    """Where the speed was measured."""
    found = row.entry.speed
    if found is None or found.images_per_second is None:
        return ""
    threads = f", {count(found.threads, 'thread')}" if found.threads and found.device == "cpu" else ""
    batch = f", {found.batch} at a time" if found.batch else ""
    return f"{found.device}{threads}{batch}"


def parameters(row: Row) -> str:
    """The size of the model as people write it: 25.6 M."""
    found = row.entry.speed.parameters if row.entry.speed else None
    if found is None:
        return "–"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if found >= size:
            return f"{found / size:.3g} {unit}"
    return str(found)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return templates_of(
        "counterfoil.report.board",
        "counterfoil.report",
        sentence=wording.sentence,
        count=count,
        settings=settings,
        chart=chart,
        speed=speed,
        machine=machine,
        parameters=parameters,
    )
