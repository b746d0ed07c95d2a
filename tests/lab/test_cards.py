"""Model cards: what was measured, on what, by which command, and measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterfoil.core.errors import BadData
from counterfoil.lab import cards
from counterfoil.lab.cards import AGAIN, card, keep_again
from counterfoil.lab.measure import MEASURES
from counterfoil.lab.measures.record import FILES, Record
from counterfoil.lab.places import WEIGHTS
from counterfoil.lab.readings import Reading, median


def put(folder: Path, file: str, split: str, value: float, *, name: str = "accuracy, full", target: float | None = 93) -> None:
    reading = Reading(name, value, value - 1, value + 1, 4000, at_least=target)
    record = Record(split, 5, 4000, "cuda", "NVIDIA H200", {"torch": "2.11.0"}, {}, [reading])
    record.write(folder / file)


def put_training(folder: Path, *, minutes: float | None = None, **more: object) -> None:
    stage = {"steps": 7400, "batch": 512, "seconds": 90, "schedule": {"steps": 7500}}
    stage |= {} if minutes is None else {"minutes": minutes}
    folder.mkdir(exist_ok=True)
    content = {"machine": "NVIDIA H200", "seed": 3, "stages": [stage], **more}
    (folder / "training.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_card_has_every_measurement_and_says_which_is_which(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 95.0)
    once = card("diverse", tmp_path)
    assert "| accuracy, full | 95.0 % | 94.0 to 96.0 | 4,000 | ≥ 93: met |" in once
    assert "`python -m counterfoil.lab.measure diverse --device cuda` on NVIDIA H200, torch 2.11.0; scenes from seed 5." in once
    assert "fresh" not in once
    put(tmp_path, "measured_fresh.json", "fresh", 92.0)
    put(tmp_path, "measured_whole.json", "whole", 80.0, target=None)
    _, report, fresh, whole = card("diverse", tmp_path).split("\n## ")
    assert "Scenes of 1,000 garments, which ship, of the 5,278 usable ones among the 8,000" in report
    assert "3,678 usable garments" in fresh
    assert "measure diverse --split fresh --device cuda" in fresh
    assert "| accuracy, full | 92.0 % | 91.0 to 93.0 | 4,000 | ≥ 93: missed |" in fresh
    assert "all 8,000 test garments" in whole
    assert "the 2,722 (34 %)" in whole
    assert "| accuracy, full | 80.0 % | 79.0 to 81.0 | 4,000 |  |" in whole


def test_a_card_says_which_garments_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 95.0)
    assert "31,987 of 48,000: the 33 % that are small, patterned or untypical" in card("diverse", tmp_path)


def test_models_of_words_are_not_said_to_see_garments(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 97.0)
    put(tmp_path, "measured_fresh.json", "fresh", 97.0)
    told = card("rewriter", tmp_path)
    assert told.count("sees no garment") == 2
    assert "usable garments" not in told


def test_a_record_of_the_older_form_is_read(tmp_path: Path) -> None:
    reading = Reading("accuracy, full", 95.0, 94.0, 96.0, 1000)
    old = {"scenes_seed": 77, "garments": "report", "readings": [reading.record()]}
    (tmp_path / "measured.json").write_text(json.dumps(old), encoding="utf-8")
    told = card("diverse", tmp_path)
    assert "Scenes from seed 77." in told
    assert "`python -m counterfoil.lab.measure" not in told


def test_training_is_told_as_it_was_recorded(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 95.0, name="colour of painted pictures")
    put_training(tmp_path, note="resumed twice")
    put_training(tmp_path / "vae", shared=True)
    told = card("diffusion", tmp_path)
    own = "**Training**: 7,400 steps of 512 in 90 s on one NVIDIA H200 (seed 3); resumed twice"
    assert (
        f"{own}; before it, its autoencoder: 7,400 steps of 512 in 90 s on one NVIDIA H200, shared with other runs (seed 3)."
        in told
    )
    recipe = "`python -m counterfoil.lab.train {} --device cuda --compile`"
    assert f"**Recipe**: {recipe.format('autoencoder')}, then {recipe.format('diffusion')}" in told


def test_times_have_a_table_of_their_own(tmp_path: Path) -> None:
    put(tmp_path, "measured.json", "report", 95.0)
    times = [median("loading", [0.5, 0.4, 0.9], "s", at_most=2).record()]
    timed = {"machine": "A processor", "threads": 2, "versions": {"torch": "2.11.0"}, "readings": times}
    (tmp_path / "timed.json").write_text(json.dumps(timed), encoding="utf-8")
    table = card("diverse", tmp_path).split("## Time on a CPU")[1]
    assert "`python -m counterfoil.lab.timing diverse` with 2 threads on A processor" in table
    assert "| what | median | range | times | target |" in table
    assert "| loading | 0.50 s | 0.40 to 0.90 | 3 | ≤ 2: met |" in table


def test_a_card_tells_of_the_model_that_the_recipe_made_again(tmp_path: Path) -> None:
    shipped, made = tmp_path / "diverse", tmp_path / "made"
    for folder, value in ((shipped, 95.0), (made, 94.0)):
        folder.mkdir()
        put(folder, "measured.json", "report", value)
        put(folder, "measured_fresh.json", "fresh", value - 2)
    with pytest.raises(BadData, match=r"has no training\.json; train lab:diverse"):
        keep_again("diverse", made, weights=tmp_path)
    put_training(made)
    keep_again("diverse", made, weights=tmp_path)
    told = card("diverse", shipped).split("## Made again by its recipe, from the start")[1]
    assert "7,400 steps of 512 in 90 s on one NVIDIA H200 (seed 3), where the recipe has 7,500 steps." in told
    assert told.index("| accuracy, full | 94.0 %") < told.index("On `fresh`") < told.index("| accuracy, full | 92.0 %")
    put_training(made / "vae")
    put_training(made, minutes=1.6, note="tried twice")
    keep_again("diverse", made, weights=tmp_path)
    told = card("diverse", shipped)
    assert "(seed 3), for 1.6 minutes, over which its schedule was stretched; tried twice." in told
    assert "Before it, its autoencoder: 7,400 steps of 512 in 90 s on one NVIDIA H200 (seed 3)." in told


@pytest.mark.parametrize("name", MEASURES)
def test_what_ships_and_what_was_made_again_meets_its_targets(name: str) -> None:
    kept = [json.loads((WEIGHTS / name / file).read_text()) for file in FILES.values() if (WEIGHTS / name / file).is_file()]
    again = WEIGHTS / name / AGAIN
    kept += [part for part in json.loads(again.read_text()).values() if "readings" in part] if again.is_file() else []
    readings = [reading for record in kept for reading in Record.parse(record).readings]
    assert readings and [reading.name for reading in readings if reading.holds is False] == []


def test_a_card_of_what_was_not_measured_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "diverse").mkdir()
    with pytest.raises(SystemExit):
        cards.main(["diverse", "--weights", str(tmp_path)])
    assert "run 'python -m counterfoil.lab.measure diverse --keep'" in capsys.readouterr().err
