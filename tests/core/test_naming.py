"""Hashes that runs are resumed and repeated by."""

from __future__ import annotations

from counterfoil.core.naming import stable_hash


def test_a_hash_stays_what_it_was_because_runs_are_resumed_and_repeated_by_it() -> None:
    assert stable_hash(0, "dog/1.png") == 12759988907835752339


def test_names_are_told_apart_wherever_they_end() -> None:
    assert len({stable_hash(1, "12"), stable_hash(11, "2"), stable_hash(112), stable_hash("1", "12", "")}) == 4


def test_a_name_that_no_file_can_be_written_with_has_a_hash_too() -> None:
    assert 0 <= stable_hash("broken \udcff name") < 2**64
