"""Runs with little or nothing to show get pages that say so."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.records import Verdict
from counterfoil.protocols.reading import open_run, write_report

from .made import ORACLE, Plan, build, replace_results
from .pages import data, read


def test_no_accepted_image(tmp_path: Path) -> None:
    words = read(write_report([build(tmp_path / "run", Plan(accept=False))], tmp_path / "report")).words
    assert "The oracle accepted none of the 22 plain reconstructions" in words
    assert "the oracle accepted no image" in words and "no accuracy on images made against it yet" in words


def test_an_oracle_that_has_not_decided_yet(tmp_path: Path) -> None:
    """Nothing was accepted, and nothing rejected either; what people say later is what counts."""
    run = build(tmp_path / "run", Plan(images=12))
    made = [trial for trial in run.trials if trial.image]
    open_ones = [replace(each, keeps_label=None) for each in run.verdicts() if each.picture == "made"]
    shutil.rmtree(run.path / "verdicts")
    (run.path / "verdicts").mkdir()
    for manifest in (run.path / "chunks").iterdir():
        content = json.loads(manifest.read_text())
        content["tables"].pop("verdicts")
        manifest.write_text(json.dumps(content))
    run = open_run(run.path)
    run.append(verdicts=open_ones)
    words = read(write_report([run], tmp_path / "report")).words
    assert f"has not decided on {len(made) // 2}, so there is no PA and no FMR yet" in words
    assert "accepted by the oracle" not in words and "No random control" not in words

    guided = [trial for trial in made if trial.arm == "guided"]
    run.append(verdicts=[Verdict(each.trial_id, "made", ORACLE, number > 1, 1.0, 0) for number, each in enumerate(guided[:-1])])
    page = read(write_report([run], tmp_path / "report"))
    assert f"{len(guided) - 3} of {len(guided) + 2} images were accepted by the oracle: fewer than 100" in page.words
    assert "The oracle has not decided on 1 image yet" in page.words
    assert "The oracle accepted none of the random control's images" in page.words
    before = sum(trial.ending == "unvalidated" for trial in run.trials if trial.arm == "guided")
    assert f"unvalidated {before + 2} {before} the oracle rejected" in page.words

    run.append(verdicts=[Verdict(each.trial_id, "made", ORACLE, False, 0.0, -1) for each in guided])
    words = read(write_report([run], tmp_path / "report")).words
    assert "accepted none of the images that were made" in words and "plain reconstructions, so nothing was made" not in words


def test_unfinished_run(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(finish=False, images=12))
    page = write_report([run], tmp_path / "report")
    words = read(page).words
    assert "This run is not finished: 12 of 12 images are done" in words
    assert "All numbers" not in words
    assert not list((tmp_path / "report").rglob("results.json"))
    assert data(tmp_path / "report/data/gallery-1.js")["entries"]


def test_run_without_images(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=1))
    for folder in ("chunks", "trials", "predictions", "verdicts"):
        for path in (run.path / folder).iterdir():
            path.unlink()
    for name in ("results.json", "chunks.json"):
        (run.path / name).unlink()
    words = read(write_report([store.open_run(run.path)], tmp_path / "report")).words
    assert "This run holds no images yet" in words
    ended = read(write_report([build(tmp_path / "ended", Plan(images=0))], tmp_path / "report-ended")).words
    assert "The oracle under audit" not in ended


def test_nothing_readable(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=1))
    with store.write(tmp_path / "bad", run.spec, run.classes, run.provenance) as writer:
        from counterfoil.core.records import Trial

        writer.add([Trial("a.png", "guided", 0, 1, "skipped", 0, 0, reason="not an image")], [], [])
        writer.finish({"counts": {}, "per_class": {}, "curve": []})
    words = read(write_report([store.open_run(tmp_path / "bad")], tmp_path / "report")).words
    assert "None of the 1 image could be read" in words
    assert "not an image" in words


def test_missing_and_damaged_pictures_are_named_not_fatal(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    trials = [trial for trial in run.trials if trial.image and trial.arm == "guided"]
    (run.path / trials[0].image).unlink()
    (run.path / trials[1].reconstruction).write_bytes(b"not an image")
    page = write_report([run], tmp_path / "report")
    assert "2 images missing from the run directory or damaged" in read(page).words
    entries = {(entry["id"], entry["arm"]): entry for entry in data(page.parent / "data/gallery-1.js")["entries"]}
    assert entries[trials[0].image_id, "guided"]["missing"] == ["made"]
    assert entries[trials[1].image_id, "guided"]["missing"] == ["reconstruction"]
    assert "search" not in entries[trials[0].image_id, "guided"]["images"]


def test_a_thousand_classes_with_long_names(tmp_path: Path) -> None:
    names = [f"{'ζωή-😀-非常に長い名前-' * 8}{number}" for number in range(1000)]
    run = build(tmp_path / "run", Plan(classes=names, images=8))
    found = (run.results or {})["per_class"][names[0]]
    found = {key: {**value, "n": 9} if isinstance(value, dict) else value for key, value in found.items()}  # enough to be drawn
    replace_results(run, per_class=dict.fromkeys(names, found))
    page = read(write_report([run], tmp_path / "report"))
    rows = [cell.attributes["data-value"] for cell in page.all("th") if cell.attributes.get("scope") == "row"]
    assert set(names) <= {*map(str, filter(None, rows))}
    assert "All 1,000 classes" in page.words


def test_undefined_numbers_and_missing_sections_do_not_break_the_page(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    (run.path / "results.json").write_text(json.dumps({"SA": {"value": None, "low": None, "high": None, "n": 0, "note": "none"}}))
    assert "none" in read(write_report([run], tmp_path / "report")).words


def test_damaged_results_are_an_error_in_one_line(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    (run.path / "results.json").write_text("{")
    with pytest.raises(BadRun, match=r"results\.json: damaged"):
        write_report([run], tmp_path / "report")


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run"):
        write_report([], tmp_path / "report")
    assert not (tmp_path / "report").exists()
