"""A table of results, once, and its renderings: terminal text, Markdown, CSV and LaTeX. Report pages draw the same tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from counterfoil.core.records import Estimate
from counterfoil.core.tables import escape_formula

MINUS, NOTHING = "−", "–"


@dataclass(frozen=True)
class Mark:
    """An estimate drawn with others in one cell, with a name for it."""

    name: str
    found: Estimate
    colour: Literal["guided", "random", "plain", "clean"] = "guided"
    hollow: bool = False


@dataclass(frozen=True)
class Link:
    """Text that leads somewhere: an address, or a filter of the gallery."""

    text: str
    to: str = ""
    show: str = ""  # a filter of the gallery, as in `class=boot`
    note: str = ""  # in small letters below
    badges: tuple[str, ...] = ()
    more: tuple[tuple[str, str], ...] = ()  # further texts with their addresses


@dataclass(frozen=True)
class Value:
    """An estimate with a unit of its own, in a column of several units, and perhaps its rank among others."""

    found: Estimate
    unit: str
    rank: str = ""


Cell = Value | str | int | float | None | Estimate | Link | tuple[Mark, ...]


@dataclass(frozen=True)
class Column:
    """A column: its heading, how its values are written and, on a page, how they are drawn."""

    title: str = ""
    kind: Literal["text", "number", "p", "rank"] = "number"
    unit: str = ""
    digits: int = 1
    sign: bool = False  # write the plus of positive values, as for differences
    axis: tuple[float, float] | None = None  # draw estimates as marks with whiskers between these
    shade: tuple[float, float] | None = None  # fill cells by their value, as in a heat map
    wide: bool = False  # text that needs room, and goes below the rest on a phone
    n: bool = False  # write the number of images behind an estimate


@dataclass(frozen=True)
class Table:
    """Rows under columns. `notes` are lines below it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    filter_rows: bool = False  # offer a field to find rows by the text of their first cell

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title or 'table'}: a row of {len(row)} cells under {len(self.columns)} columns")


def estimate_text(found: Estimate, *, unit: str = "", digits: int = 1, sign: bool = False) -> str:
    """A value with its interval, or why one of them is missing or shows nothing."""
    if found.value is None:
        return f"undefined: {found.note}"
    form = f"{'+' if sign else ''}.{digits}f"
    value = f"{_round(found.value, digits):{form}}{unit}"
    if found.low is None or found.high is None or (found.low == found.high and found.note):
        return minus(f"{value} ({found.note})")
    return minus(f"{value} ({_round(found.low, digits):{form}} to {_round(found.high, digits):{form}})")


def estimate_in(entry: Mapping[str, Any] | None, name: str) -> Estimate | None:
    """The estimate of that name among results; None where there is none."""
    found = (entry or {}).get(name)
    return Estimate.from_dict(found) if isinstance(found, Mapping) and "value" in found else None


def tau_text(found: Estimate) -> str:
    """Kendall's tau with its interval, or why there is none."""
    return estimate_text(found, digits=2)


def minus(text: str) -> str:
    """Write hyphens before digits as minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", MINUS, text)


def p_text(p: float) -> str:
    """A p-value with the digits that matter; never 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def p_is(p: float) -> str:
    """A p-value in a sentence: `p = 0.02`, `p < 0.001`."""
    return f"p {p_text(p)}" if p < 0.001 else f"p = {p_text(p)}"


def amount(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 edit`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def join_names(names: Sequence[str], *, most: int = 5) -> str:
    """Names in a sentence: `a`, `a and b`, `a, b and 3 more`."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def cell_text(cell: Cell, column: Column) -> str:
    """A cell in words."""
    match cell:
        case None:
            return NOTHING if column.kind in ("number", "p", "rank") else ""
        case Estimate():
            text = estimate_text(cell, unit=column.unit, digits=column.digits, sign=column.sign)
            return f"{text}, {cell.n}" if column.n and cell.value is not None else text
        case Value():
            text = estimate_text(cell.found, unit=cell.unit, digits=column.digits, sign=column.sign)
            return f"{text}, rank {cell.rank}" if cell.rank else text
        case Link():
            return cell.text
        case tuple():
            return "; ".join(f"{each.name} {estimate_text(each.found, unit=column.unit, digits=column.digits)}" for each in cell)
        case str():
            return cell
        case int():
            return f"{cell:,}"
        case float() if column.kind == "p":
            return p_text(cell)
        case float():
            return minus(f"{_round(cell, column.digits):{'+' if column.sign else ''}.{column.digits}f}{column.unit}")


def text_of(tables: Sequence[Table]) -> str:
    """Several tables for the terminal, one under the other."""
    return "\n\n".join("\n".join(as_text(table)) for table in tables if table.rows or table.notes or table.title)


def as_text(table: Table, *, indent: str = "") -> list[str]:
    """Lines for the terminal, columns lined up."""
    heads = [column.title for column in table.columns]
    rows = [[cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    lines = [f"{indent}{table.title}"] if table.title else []
    if rows:
        every = [heads, *rows] if any(heads) else rows
        widths = [max(len(row[at]) for row in every) for at in range(len(heads))]
        aligned = [_alignment(column, [row[at] for row in rows]) for at, column in enumerate(table.columns)]
        for row in every:
            cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, aligned, widths, strict=True) if width)
            lines.append(f"{indent}{'  ' if table.title else ''}{'  '.join(cells)}".rstrip())
    return [*lines, *(f"{indent}{'  ' if table.title else ''}{note}" for note in table.notes)]


def as_markdown(table: Table) -> str:
    """A table for a README or an issue."""
    rows = [[cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    heads = [column.title for column in table.columns]
    rule = ["---" if column.kind == "text" else "--:" for column in table.columns]
    lines = [f"| {' | '.join(_in_markdown(cell) for cell in row)} |" for row in (heads, rule, *rows)]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, *lines, *(line for note in table.notes for line in ("", note))]) + "\n"


def as_data(table: Table) -> dict[str, Any]:
    """A table as plain values, for JSON: estimates with interval and n, other cells as they are."""

    def plain(cell: Cell, column: Column) -> Any:
        match cell:
            case Estimate():
                return cell.to_dict()
            case Value():
                return {**cell.found.to_dict(), "unit": cell.unit, **({"rank": cell.rank} if cell.rank else {})}
            case tuple():
                return {each.name: each.found.to_dict() for each in cell}
        return cell_text(cell, column) if isinstance(cell, Link) else cell

    rows = [[plain(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    return {"title": table.title, "columns": [each.title for each in table.columns], "rows": rows, "notes": list(table.notes)}


def as_csv(table: Table) -> str:
    """Values for a spreadsheet: an estimate is four columns. Texts that would be formulas are escaped."""
    spread = [any(isinstance(row[at], Estimate | Value) for row in table.rows) for at in range(len(table.columns))]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads: list[str] = []
    for column, several in zip(table.columns, spread, strict=True):
        heads += (
            [column.title, *(f"{column.title} {part}".strip() for part in ("low", "high", "n"))] if several else [column.title]
        )
    writer.writerow([escape_formula(head) for head in heads])
    for row in table.rows:
        cells: list[Any] = []
        for cell, column, several in zip(row, table.columns, spread, strict=True):
            if isinstance(cell, Estimate | Value):
                found = cell.found if isinstance(cell, Value) else cell
                cells += [found.value, found.low, found.high, found.n]
            elif several:
                cells += [cell_text(cell, column), "", "", ""]
            else:
                cells.append(cell if isinstance(cell, int | float) else escape_formula(cell_text(cell, column)))
        writer.writerow(["" if cell is None else cell for cell in cells])
    return stream.getvalue()


def as_latex(table: Table) -> str:
    """A tabular for a paper, with the rules of booktabs."""
    sides = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    rows = [[cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    body = [" & ".join(_in_latex(cell) for cell in row) + r" \\" for row in rows]
    head = " & ".join(_in_latex(column.title) for column in table.columns) + r" \\"
    notes = [f"% {note}" for note in table.notes]
    return "\n".join([rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
                      r"\end{tabular}", *notes]) + "\n"  # fmt: skip


def _round(value: float, digits: int) -> float:
    """Without a negative zero."""
    return round(value, digits) + 0.0


def _alignment(column: Column, cells: Sequence[str]) -> str:
    """Left for text, right for plain numbers; estimates start at the left, as their intervals differ in length."""
    return "<" if column.kind == "text" or any("(" in cell or ":" in cell for cell in cells) else ">"


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", " ".join(text.split())) if text not in ("---", "--:") else text


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", NOTHING: "--", "<": "$<$", ">": "$>$", "→": r"$\to$",
}  # fmt: skip


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
