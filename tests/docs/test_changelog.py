"""The changelog is read by skimming."""

from __future__ import annotations

from pathlib import Path

ENTRIES = [line for line in (Path(__file__).parents[2] / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]


def test_each_entry_is_one_line_of_at_most_25_words():
    assert len(ENTRIES) > 20
    assert [line for line in ENTRIES if len(line[2:].split()) > 25] == []
