"""Tables and the words in them: one object, five renderings."""

from __future__ import annotations

import pytest

from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import (
    Column,
    Link,
    Mark,
    Table,
    Value,
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    estimate_text,
    join_names,
    minus,
    p_is,
    p_text,
)

FOUND = Estimate(-9.94, -12.0, 3.25, 40)
NONE = Estimate(None, None, None, 0, "no image")
TABLE = Table(
    [Column("model", "text"), Column("drop", unit=" points", sign=True), Column("p", "p"), Column("n")],
    [["a_b", FOUND, 0.0004, 1200], ["=cmd|x", NONE, "", None]],
    title="Drops",
    notes=["paired"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("p", "table", "sentence"),
    [
        (0.0, "< 0.001", "p < 0.001"),
        (8e-5, "< 0.001", "p < 0.001"),
        (0.001, "0.001", "p = 0.001"),
        (0.0449, "0.045", "p = 0.045"),
        (0.31, "0.31", "p = 0.31"),
        (1.0, "1.00", "p = 1.00"),
    ],
)
def test_digits(p: float, table: str, sentence: str) -> None:
    assert (p_text(p), p_is(p)) == (table, sentence)


def test_text_lines_columns_up() -> None:
    assert as_text(TABLE) == [
        "Drops",
        "  model   drop                               p      n",
        "  a_b     −9.9 points (−12.0 to +3.2)  < 0.001  1,200",
        "  =cmd|x  undefined: no image                       –",
        "  paired",
    ]


def test_csv_has_the_numbers_whole_and_no_formula() -> None:
    head, first, second = as_csv(TABLE).splitlines()
    assert head == "model,drop,drop low,drop high,drop n,p,n"
    assert first == "a_b,-9.94,-12.0,3.25,40,0.0004,1200"
    assert second.startswith("'=cmd|x,,,,0,")


def test_markdown_and_latex_escape_what_would_be_read_as_marks() -> None:
    assert "| a\\_b | −9.9 points (−12.0 to +3.2) | \\< 0.001 | 1,200 |" in as_markdown(TABLE)
    assert "=cmd\\|x" in as_markdown(TABLE)
    latex = as_latex(TABLE)
    assert r"a\_b & $-$9.9 points ($-$12.0 to +3.2) & $<$ 0.001 & 1,200 \\" in latex and r"\begin{tabular}{lrrr}" in latex


def test_cells_of_other_kinds_have_words_too() -> None:
    marks = (Mark("guided", FOUND), Mark("random", NONE))
    table = Table([Column("", "text"), Column("x")], [[Link("boot", show="class=boot"), marks], ["y", Value(FOUND, " %")]])
    text = "\n".join(as_text(table))
    assert "boot" in text and "guided −9.9 (−12.0 to 3.2); random undefined: no image" in text and "−9.9 % (−12.0 to 3.2)" in text


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 cells under 1 columns"):
        Table([Column("a")], [[1, 2]])


def test_words() -> None:
    assert estimate_text(Estimate(-0.04, None, None, 1, "one image"), unit=" %") == "0.0 % (one image)"
    assert minus("-1 to a-2, x -3.5") == "−1 to a-2, x −3.5"
    joined = [join_names(list("abcdefg"[:n])) for n in (0, 1, 2, 3, 7)]
    assert joined == ["", "a", "a and b", "a, b and c", "a, b, c, d and 3 more"]
