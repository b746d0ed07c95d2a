"""Model cards: what was measured, and measured again."""

from __future__ import annotations

import json
from pathlib import Path

from counterfoil.lab.cards import card
from counterfoil.lab.readings import Reading


def put(folder: Path, file: str, garments: str, value: float) -> None:
    reading = Reading("accuracy, full", value, value - 1, value + 1, 1000, at_least=93)
    record = {"scenes_seed": 77, "garments": garments, "readings": [reading.record()]}
    (folder / file).write_text(json.dumps(record), encoding="utf-8")


def test_a_card_has_both_measurements_and_says_which_is_which(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 95.0)
    once = card("diverse", tmp_path)
    assert "| accuracy, full | 95.0 % | 94.0 to 96.0 | 1,000 | ≥ 93: met |" in once
    assert "again" not in once
    put(tmp_path, "measured_fresh.json", "fresh", 92.0)
    first, again = card("diverse", tmp_path).split("## Measured again on garments that no choice was made by")
    assert "95.0 %" in first
    assert "| accuracy, full | 92.0 % | 91.0 to 93.0 | 1,000 | ≥ 93: missed |" in again
