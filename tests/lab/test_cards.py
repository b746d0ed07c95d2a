"""Model cards: what was measured, and measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.errors import BadData
from counterfoil.lab.cards import card, keep_again
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


def test_a_card_tells_of_the_model_that_the_recipe_made_again(tmp_path: Path) -> None:
    shipped, made = tmp_path / "diverse", tmp_path / "made"
    for folder, value in ((shipped, 95.0), (made, 94.0)):
        folder.mkdir()
        put(folder, "measured.json", "report", value)
        put(folder, "measured_fresh.json", "fresh", value - 2)
    with pytest.raises(BadData, match=r"has no training\.json; train lab:diverse"):
        keep_again("diverse", made, weights=tmp_path)
    training = {"machine": "NVIDIA H200", "seed": 3, "stages": [{"steps": 7500, "batch": 512, "seconds": 90}]}
    (made / "training.json").write_text(json.dumps(training), encoding="utf-8")
    keep_again("diverse", made, weights=tmp_path)
    told = card("diverse", shipped).split("## Made again by its recipe, from the start")[1]
    assert "7,500 steps of 512 in 90 s on one NVIDIA H200 (seed 3)" in told
    assert told.index("| accuracy, full | 94.0 %") < told.index("no choice was made by") < told.index("| accuracy, full | 92.0 %")
