"""Model cards of the lab: what was measured, on what, and by which command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.training.cards import card
from lab.training.measure import FILES, MEASURES, WORDS_ALONE, Record

from counterfoil.core.errors import BadData
from counterfoil.parts.weights import file_sha256
from counterfoil_lab.checker import Reading
from counterfoil_lab.parts import WEIGHTS


def put(folder: Path, split: str, value: float, *, target: float | None = 93) -> None:
    """Write a record of one reading."""
    reading = Reading("accuracy, full", value, value - 1, value + 1, 4000, at_least=target)
    Record(split, 5, 4_000, "cuda", "NVIDIA H200", {"torch": "2.11.0"}, {}, [reading]).write(folder / FILES[split])


def test_a_card_has_every_measurement_with_its_garments_and_target(tmp_path: Path) -> None:
    put(tmp_path, "report", 95.0)
    put(tmp_path, "fresh", 92.0)
    put(tmp_path, "whole", 80.0, target=None)
    _, report, fresh, whole = card("diverse", tmp_path).split("\n## ")
    assert "`python -m lab.training.measure diverse --device cuda` on NVIDIA H200, torch 2.11.0" in report
    assert "| accuracy, full | 95.0 % | 94.0 to 96.0 | 4,000 | ≥ 93: met |" in report
    assert "3,678 usable garments" in fresh and "≥ 93: missed |" in fresh
    assert "all 8,000 test garments" in whole and "| accuracy, full | 80.0 % | 79.0 to 81.0 | 4,000 |  |" in whole


def test_a_card_needs_a_measurement(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"python -m lab\.training\.measure diverse --keep"):
        card("diverse", tmp_path)


@pytest.mark.parametrize("name", MEASURES)
def test_what_ships_was_measured_and_meets_its_targets(name: str) -> None:
    folder = WEIGHTS / name
    files = {split: folder / file for split, file in FILES.items() if (folder / file).is_file()}
    assert set(FILES) - set(files) == ({"whole"} if name in WORDS_ALONE else set())
    for split, path in files.items():
        record = Record.read(path)
        assert record.split == split
        assert [reading.name for reading in record.readings if reading.holds is False] == []
        own = {file.relative_to(WEIGHTS).as_posix() for file in folder.rglob("*.safetensors")}
        assert own <= set(record.weights)
        assert record.weights == {file: file_sha256(WEIGHTS / file) for file in record.weights}
    assert (folder / "README.md").read_text(encoding="utf-8") == card(name, folder)
    assert json.loads((folder / "training.json").read_text(encoding="utf-8"))["stages"]
