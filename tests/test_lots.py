from __future__ import annotations

from counterfoil.core.lots import lot


def test_a_lot_stays_what_it_was_because_runs_are_resumed_and_repeated_by_it() -> None:
    assert lot(0, "dog/1.png") == 12759988907835752339


def test_names_are_told_apart_wherever_they_end() -> None:
    assert len({lot(1, "12"), lot(11, "2"), lot(112), lot("1", "12", "")}) == 4


def test_a_name_that_no_file_can_be_written_with_has_a_lot_too() -> None:
    assert 0 <= lot("broken \udcff name") < 2**64
