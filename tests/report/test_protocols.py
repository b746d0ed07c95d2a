"""Trials of protocols that make pictures from words, as the gallery sees them: outcomes, factors, reasons, words."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.report.collect import Collected, collect
from counterfoil.report.gallery import write_gallery
from counterfoil.report.pictures import Album

from .made import picture
from .pages import data

SPEC = {"protocol": "lance", "model": {"name": "m", "options": {}}, "oracle": {"name": "o", "options": {}}}


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    """One source with four edits: kept, fooled, rejected by the oracle, and turned away by a check before it."""
    with store.write(tmp_path / "run", SPEC, ("ant", "bee"), {}) as writer:
        images = [picture(0, "clean", 16), *(picture(number + 1, "guided", 16) for number in range(3))]
        clean = store.image_name(images[0])
        trials = [Trial("a.png", "source", 0, 1, "made", 0, 0, clean=clean, caption="an ant")]
        predictions = [Prediction("a.png#source", "clean", "m", 0, True, 0.9, 0.9)]
        verdicts = []
        for number, (right, accepted) in enumerate([(True, True), (False, True), (False, False)]):
            trial = Trial(
                "a.png", "edited", 0, 1, "made", 0, 0, clean=clean, image=store.image_name(images[number + 1]),
                variant=f"background {number}", factor="background", value="sea", caption="an ant", prompt="an ant at sea",
            )  # fmt: skip
            trials.append(trial)
            predictions.append(Prediction(trial.trial_id, "made", "m", 0 if right else 1, right, 0.8, 0.5))
            verdicts.append(Verdict(trial.trial_id, "made", "o", accepted, 0.5, 0))
        trials.append(
            Trial("a.png", "edited", 0, 1, "rejected", 0, 0, variant="weather 0", factor="weather", reason="too far off")
        )
        writer.add(trials, predictions, verdicts, images)
    return collect(store.open_run(tmp_path / "run"), number=1, label="m", pictures=9)


def test_every_edit_has_its_outcome_and_the_source_is_no_entry_of_its_own(collected: Collected) -> None:
    found = {shown.trial.variant: shown.outcome for shown in collected.shown}
    assert found == {"background 0": "kept", "background 1": "fooled", "background 2": "unvalidated", "weather 0": "rejected"}
    assert len({shown.key for shown in collected.shown}) == 4


def test_a_model_that_was_wrong_before_is_not_fooled(collected: Collected, tmp_path: Path) -> None:
    run = collected.run
    run.append(predictions=[Prediction("a.png#source", "clean", "m", 1, False, 0.9, 0.1)])
    found = {shown.trial.variant: shown.outcome for shown in collect(run, number=1, label="m", pictures=9).shown}
    assert found["background 1"] == "wrong before"


def test_the_data_carry_factor_words_and_reason(collected: Collected, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    scripts = write_gallery(collected, tmp_path / "report", Album(tmp_path / "report"))
    assert scripts == ["data/run-1.js", "data/gallery-1.js"]
    entries = {entry["outcome"]: entry for entry in data(tmp_path / "report" / scripts[1])["entries"]}
    assert (entries["kept"]["factor"], entries["kept"]["value"]) == ("background", "sea")
    assert entries["kept"]["model"]["clean"][1] is True  # told once, of the source
    assert "search" in entries["kept"]["pictures"]  # made minus source, as there is no reconstruction
    assert entries["rejected"]["reason"] == "too far off"
    told = {entry["outcome"]: entry["history"] for entry in data(tmp_path / "report/data/history-1-001.js")["entries"]}
    assert (told["fooled"]["caption"], told["fooled"]["prompt"]) == ("an ant", "an ant at sea")
