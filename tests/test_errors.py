from __future__ import annotations

from counterfoil.core.errors import one_line


def test_an_error_over_several_lines_becomes_one() -> None:
    assert one_line(ValueError("bad  header\n  at byte 3\n")) == "bad header at byte 3"


def test_a_long_one_is_cut_where_it_shows() -> None:
    assert one_line(ValueError("x" * 300), longest=10) == "xxxxxxxxx…"
    assert len(one_line(ValueError("x" * 300))) == 200


def test_one_that_says_nothing_is_called_by_its_kind() -> None:
    assert one_line(TimeoutError()) == "TimeoutError"
