"""The gallery's data is what the records say: filters filter by the truth, and images are the run's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterfoil import protocols
from counterfoil.core.records import Prediction, Verdict
from counterfoil.protocols.reading import write_report
from counterfoil.report.images import GAIN, LARGEST, SMALL
from counterfoil.store import Run
from counterfoil.store.later import AskedPart, record
from tests.worlds import FAKES, arrays, spec

from .made import Plan, build, expected_outcome, image_id
from .pages import data


def test_every_trial_is_there_with_outcome_ending_class_and_arm(run: Run, report: Path) -> None:
    overview = data(report / "data/gallery-1.js")
    entries = {(entry["id"], entry["arm"]): entry for entry in overview["entries"]}
    trials = [trial for trial in run.trials if trial.ending != "skipped"]
    assert len(entries) == len(overview["entries"]) == len(trials)
    for trial in trials:
        entry = entries[trial.image_id, trial.arm]
        assert (entry["label"], entry["ending"], entry["steps"]) == (trial.label, trial.ending, trial.steps)
    guided = Counter(entry["outcome"] for entry in overview["entries"] if entry["arm"] == "guided")
    expected = Counter(expected_outcome(Plan(), number) for number in range(Plan().images))
    del expected["skipped"]
    assert guided == expected


def test_an_entry_says_what_model_and_oracle_said(report: Path) -> None:
    entries = {(entry["id"], entry["arm"]): entry for entry in data(report / "data/gallery-1.js")["entries"]}
    fooled = entries["img 1.png", "guided"]
    assert fooled["model"] == {
        "clean": [1, True, 0.875, 0.5],
        "reconstruction": [1, True, 0.875, 0.5],
        "made": [2, False, 0.625, 0.125],
    }
    assert fooled["oracle"]["made"] == [1, True, 0.75]
    control = entries["img 1.png", "random"]
    assert control["outcome"] == "kept"
    assert control["model"]["clean"] == [1, True, 0.875, 0.5]  # recorded once, under the guided arm
    rejected = entries["img 4.png", "guided"]
    assert rejected["outcome"] == "unvalidated"
    assert rejected["oracle"]["reconstruction"] == [2, False, 0.3125]
    assert "made" not in rejected["images"]
    assert rejected["missing"] == []


def test_histories_hold_the_path_and_are_found_by_part(report: Path) -> None:
    for entry in data(report / "data/gallery-1.js")["entries"]:
        told = data(report / f"data/history-1-{entry['part']:03d}.js")["entries"]
        (history,) = [each["history"] for each in told if each["key"] == entry["key"]]
        made = entry["outcome"] != "unvalidated"
        assert len(history["loss"]) == len(history["predicted"]) == len(history["score"]) == (entry["steps"] + 1 if made else 0)
    assert history["source"] == entry["id"]


def test_pictures_are_the_runs_own_and_differences_are_amplified(run: Run, report: Path) -> None:
    trial = next(trial for trial in run.trials if trial.image)
    entry = next(
        entry
        for entry in data(report / "data/gallery-1.js")["entries"]
        if entry["id"] == trial.image_id and entry["arm"] == trial.arm
    )
    shown = {name: _pixels(report / paths[0]) for name, paths in entry["images"].items()}
    for name, path in (("clean", trial.clean), ("reconstruction", trial.reconstruction), ("made", trial.image)):
        np.testing.assert_array_equal(shown[name], _pixels(run.path / path))
    np.testing.assert_array_equal(shown["search"], np.clip(128 + GAIN * (shown["made"] - shown["reconstruction"]), 0, 255))
    np.testing.assert_array_equal(shown["generator"], np.clip(128 + GAIN * (shown["reconstruction"] - shown["clean"]), 0, 255))


def test_large_pictures_get_thumbnails_and_a_largest_size(tmp_path: Path) -> None:
    report = write_report([build(tmp_path / "run", Plan(images=1, side=540, control=False))], tmp_path / "report").parent
    entry = data(report / "data/gallery-1.js")["entries"][0]
    for full, thumb in entry["images"].values():
        assert max(Image.open(report / full).size) == LARGEST
        assert max(Image.open(report / thumb).size) == SMALL


def test_a_choice_of_images_is_the_same_for_runs_over_the_same_data(tmp_path: Path) -> None:
    runs = [build(tmp_path / "one"), build(tmp_path / "two", Plan(model="python:n"))]
    report = write_report(runs, tmp_path / "report", images=6).parent
    one, two = ({entry["id"] for entry in data(report / f"data/gallery-{number}.js")["entries"]} for number in (1, 2))
    assert one == two
    assert len(one) == 6
    assert "Half are the most confident mistakes, half a random choice of the images" in " ".join(
        (report / "index.html").read_text().split()
    )


def test_the_choice_is_not_the_first_images(tmp_path: Path) -> None:
    report = write_report([build(tmp_path / "run")], tmp_path / "report", images=6).parent
    chosen = {entry["id"] for entry in data(report / "data/gallery-1.js")["entries"]}
    assert chosen != {image_id(Plan(), number) for number in range(6)}


def test_what_others_said_later_is_in_the_history(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    trial = next(trial for trial in run.trials if trial.image)
    run.append(predictions=[Prediction(trial.trial_id, "made", "python:other", 2, False, 0.5, 0.25)])
    report = write_report([run], tmp_path / "report").parent
    told = [
        entry["history"]["others"]
        for path in (report / "data").glob("history-*.js")
        for entry in data(path)["entries"]
        if entry["history"]["others"]
    ]
    assert told == [[{"who": "python:other", "role": "model", "picture": "made", "said": [2, False, 0.5, 0.25]}]]


def test_models_that_were_scored_later_are_told_apart_without_their_folders(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(model="python:/home/ada/own/lite.py:lite0"))
    later = [f"python:/home/ada/{folder}/lite.py:lite0" for folder in ("one", "two")]
    trials = [trial for trial in run.trials if trial.image]
    said = [Prediction(each.trial_id, "made", name, at, False, 0.5, 0.25) for each in trials for at, name in enumerate(later)]
    run.append(predictions=said, verdicts=[Verdict(trials[0].trial_id, "made", "clip:/home/ada/clip.pt", True, 0.5, 0)])
    for name in later:
        record(run.path, AskedPart("model", name, {}, caution="a relative"))
    report = write_report([run], tmp_path / "report").parent
    names = ["python:lite.py:lite0", "python:lite.py:lite0 (2)", "python:lite.py:lite0 (3)"]
    told = data(report / "data/run-1.js")
    assert [told["model"], *told["scored"]] == names
    entry = next(each for each in data(report / "data/gallery-1.js")["entries"] if each["scored"])
    assert {name: answers["made"][0] for name, answers in entry["scored"].items()} == {names[1]: 0, names[2]: 1}
    history = data(report / "data/history-1-001.js")["entries"]
    assert {each["who"] for one in history for each in one["history"]["others"]} == {*names[1:], "clip:clip.pt"}
    assert not [path for path in report.rglob("*") if path.suffix in (".html", ".js", ".csv") and "/home/ada" in path.read_text()]


def test_a_report_of_files_on_this_machine_names_no_folder_of_it(tmp_path: Path) -> None:
    run = protocols.run(spec(f"tensors:{arrays(tmp_path / 'a.npz', 8)}"), tmp_path / "run")
    report = write_report([run], tmp_path / "report").parent
    shown = [path for path in report.rglob("*") if path.suffix in (".html", ".js", ".csv")]
    here = [str(folder) for folder in (tmp_path, FAKES.parent)]
    assert len(shown) > 4 and not [path for path in shown if any(folder in path.read_text() for folder in here)]
    (entry, *_) = data(report / "data/history-1-001.js")["entries"]
    assert entry["history"]["source"].startswith("a.npz[")


def test_runs_of_two_files_of_one_name_are_told_apart_without_their_folders(tmp_path: Path) -> None:
    runs = [build(tmp_path / name, Plan(model=f"python:/home/ada/{name}/lite.py:lite0")) for name in ("one", "two")]
    report = write_report(runs, tmp_path / "report").parent
    assert [data(report / f"data/run-{at}.js")["model"] for at in (1, 2)] == ["python:lite.py:lite0", "python:lite.py:lite0 (2)"]
    assert not [page for page in report.glob("*.html") if "/home/ada" in page.read_text()]


@pytest.mark.parametrize("trick", ["../../secret.png", "/etc/hostname", "images/../../secret.png"])
def test_paths_that_lead_out_of_the_run_are_not_followed(tmp_path: Path, trick: str) -> None:
    from counterfoil.report.images import ReportImages

    run = tmp_path / "deep" / "run"
    run.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "deep" / "secret.png")
    (run / "images").mkdir()
    assert ReportImages(tmp_path / "out").keep(run, trick) is None


def test_links_that_lead_out_of_the_run_are_not_followed(tmp_path: Path) -> None:
    from counterfoil.report.images import ReportImages

    (tmp_path / "run").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "run" / "made.png").symlink_to(tmp_path / "secret.png")
    assert ReportImages(tmp_path / "out").keep(tmp_path / "run", "made.png") is None


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image, dtype=np.int16)


def test_half_of_a_large_runs_gallery_are_its_most_confident_mistakes(tmp_path: Path) -> None:
    """A random sample by id leaves out the worst failures, and sorting it by confidence shows some thousand others."""
    run = build(tmp_path / "run")
    fooled = {trial.trial_id for trial in run.trials if trial.arm == "guided" and trial.image}
    sure = {each.trial_id: each.confidence for each in run.predictions() if each.picture == "made" and not each.correct}
    worst = sorted((each for each in sure if each in fooled), key=lambda each: (sure[each], each))[-2:]
    report = write_report([run], tmp_path / "report", images=4).parent
    shown = {f"{entry['id']}#guided" for entry in data(report / "data/gallery-1.js")["entries"]}
    kept = {each for each in worst if any(each == other for other in shown)}
    assert kept, (worst, shown)
