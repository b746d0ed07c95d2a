"""The record of models and oracles that were asked later."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import BadRun
from counterfoil.store.later import ASKED, AskedPart, asked_of, record

from .made import write

CLIP = AskedPart("oracle", "clip:b", {"weights": "a" * 64}, "not independent: …")
MODEL = AskedPart("model", "timm:a", {})


def test_a_part_is_entered_once_and_the_last_word_holds(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    assert asked_of(tmp_path) == []
    for part in (CLIP, MODEL, AskedPart("oracle", "clip:b", {"weights": "b" * 64})):
        record(tmp_path, part)
    assert asked_of(tmp_path) == [MODEL, AskedPart("oracle", "clip:b", {"weights": "b" * 64})]


def test_a_run_that_goes_on_keeps_it(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    record(tmp_path, CLIP)
    write(tmp_path, range(4))
    assert asked_of(tmp_path) == [CLIP]


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', '[{"role": "judge", "name": "", "provenance": {}, "caution": ""}]'])
def test_a_damaged_one_is_named_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / ASKED).write_text(content)
    with pytest.raises(BadRun, match=r"asked\.json: damaged .* delete it and ask again"):
        asked_of(tmp_path)
