"""The page says what the results say, and what a reader has to know beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from counterfoil.core.records import Prediction, Verdict
from counterfoil.metrics.fmr import MEANINGS
from counterfoil.protocols.reading import write_report
from counterfoil.store import Run, open_run
from counterfoil.store.later import Asked, record

from .made import Plan, build, replace_results
from .pages import read


def test_every_number_stands_there_with_interval_and_meaning(run: Run, report: Path) -> None:
    rows = read(report / "index.html").rows
    assert run.results is not None
    for key, meaning in MEANINGS.items():
        found = run.results[key]
        unit = "" if key.startswith("steps") else " %"
        numbers = f"{key} {found['value']:.1f}{unit} {found['low']:.1f} to {found['high']:.1f} {found['n']} "
        sentence = f"{meaning[0].upper()}{meaning[1:]}."
        assert any(numbers in row and sentence in row for row in rows), numbers


def test_published_and_matched_fmr_stand_beside_each_other(report: Path) -> None:
    headings = [heading.text for heading in read(report / "index.html").all("h2")]
    assert headings.index("FMR, matched") == headings.index("FMR, as published") + 1


def test_settings_the_paper_leaves_open_are_printed(report: Path) -> None:
    rows = read(report / "index.html").rows
    wanted = {
        "guidance": "auto",
        "norm": "l2",
        "unit": "scale",
        "step": "0.01",
        "budget": "3",
        "space": "code",
        "SA subset": "the accepted ones",
        "seed": "5",
        "torch": "2.15.0",
        "data hash": "d" * 64,
        "code hash": "c" * 64,
        "cores": "2",
    }
    for name, value in wanted.items():
        assert any(row.startswith(name) and row.endswith(value) for row in rows), name


def test_cautions_are_given_where_due(report: Path) -> None:
    words = read(report / "index.html").words
    assert "Only 18 images were accepted by the oracle" in words
    assert "The FMR's interval spans" in words
    assert "2 pictures could not be used and count nowhere" in words
    assert "FMR above 100" not in words
    assert "No random control" not in words


def test_a_run_without_control_says_so(tmp_path: Path) -> None:
    words = read(write_report([build(tmp_path / "run", Plan(control=False))], tmp_path / "report")).words
    assert "No random control was run" in words


def test_guided_and_random_steps_are_told_apart_image_by_image(tmp_path: Path) -> None:
    """Two intervals that overlap say nothing of a paired difference, one way or the other."""
    run = build(tmp_path / "run")
    wide = {"value": 50.0, "low": 20.0, "high": 80.0, "n": 18}
    sure = {"value": 11.0, "low": 4.0, "high": 18.0, "n": 18, "p": 0.002}

    def words(against_random: object) -> str:
        replace_results(run, PA=wide, PA_random=wide, arms={"against_random": against_random})
        return read(write_report([run], tmp_path / "report")).words

    assert "overlap" not in words(sure) and "nothing of their own" not in words(sure)
    unsure = words({**sure, "low": -4.0, "p": 0.2})
    assert "guided steps take only 11.0 points of accuracy (−4.0 to 18.0; p = 0.2) more than random ones" in unsure
    assert "goes the wrong way" in words({**sure, "value": -9.0, "low": -12.0, "high": -1.0})
    assert "That does not say that they are equal" in words(None)  # an older run


def test_an_fmr_over_100_and_a_low_validation_rate_are_explained(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    replace_results(
        run,
        FMR={"value": 108.2, "low": 107.0, "high": 109.5, "n": 17},
        VR={"value": 31.0, "low": 20.0, "high": 42.0, "n": 22},
    )
    words = read(write_report([run], tmp_path / "report")).words
    assert "An FMR above 100 (108.2) does not mean that the model got better" in words
    assert "The oracle accepts only 31.0 % of the images" in words


@pytest.mark.parametrize(
    ("steps", "said"), [(0.0, "No step was kept, so PA is"), (0.4, "More than half of the accepted images kept no step")]
)
def test_images_that_did_not_move_are_pointed_out(tmp_path: Path, steps: float, said: str) -> None:
    run = build(tmp_path / "run")
    replace_results(run, steps={"value": steps, "low": steps, "high": steps, "n": 18})
    words = read(write_report([run], tmp_path / "report")).words
    assert said in words


def test_skipped_pictures_are_listed_with_their_reason(report: Path) -> None:
    rows = read(report / "index.html").rows
    assert [row for row in rows if "truncated" in row] == [
        "img 10.png bee truncated after 12 bytes; replace the file",
        "img 21.png ant truncated after 12 bytes; replace the file",
    ]


def test_the_table_of_classes_holds_exact_values_to_sort_by(run: Run, report: Path) -> None:
    page = read(report / "index.html")
    assert run.results is not None
    names = [cell.attributes["data-value"] for cell in page.all("th") if cell.attributes.get("class") == "class-name"]
    assert names == list(run.results["per_class"])
    first = next(cell for cell in page.all("td") if cell.attributes.get("class") == "num stacked")
    assert float(first.attributes["data-value"]) == run.results["per_class"]["ant"]["SA"]["value"]


def test_models_and_oracles_asked_later_have_a_table(tmp_path: Path) -> None:
    run = build(tmp_path / "run")
    trials = [trial for trial in run.trials if trial.ending != "skipped"]
    made = [trial for trial in trials if trial.image]
    told = [Prediction(trial.trial_id, "clean", "python:later", trial.label, True, 0.5, 0.5) for trial in trials]
    told += [Prediction(trial.trial_id, "made", "python:later", 0, False, 0.5, 0.5) for trial in made]
    judged = [Verdict(trial.trial_id, "made", "human:panel", False, 0.0, 0) for trial in made]
    run.append(predictions=told, verdicts=judged)
    rows = read(write_report([run], tmp_path / "report")).rows
    assert any(row.startswith("python:later model 100.0") and " 0.0 0.0 to " in row for row in rows)
    assert any(row.startswith("human:panel oracle") and " 0.0 0.0 to " in row for row in rows)


def test_judges_that_are_not_independent_are_marked(run: Run, report: Path, tmp_path: Path) -> None:
    own = "the oracle is not independent: it shares 80% of its weights with the model under test; the run was forced"
    forced = copied(run, tmp_path / "run", caution=own)
    made = [trial for trial in forced.trials if trial.image]
    names = ("classifier:twin", "clip:other")
    forced.append(verdicts=[Verdict(trial.trial_id, "made", name, True, 1.0, trial.label) for name in names for trial in made])
    caution = (
        "not independent: the hash of its weights (weights) is that of the run's model, so the one fails where the other fails"
    )
    record(forced.path, Asked("oracle", "classifier:twin", {"weights": "a" * 64}, caution))
    record(forced.path, Asked("oracle", "clip:other", {"weights": "b" * 64}))
    page = read(write_report([forced], tmp_path / "report"))
    assert "Take care The oracle is not independent: it shares 80% of its weights" in page.words
    assert f"Take care The oracle classifier:twin, which was asked later, is {caution}." in page.words
    assert any(row.startswith(f"classifier:twin {caution} oracle") for row in page.rows)
    assert any(row.startswith("clip:other oracle") for row in page.rows)
    assert "clip:other, which was asked later" not in page.words
    assert any(row.startswith("clip:other: weights") and row.endswith("b" * 64) for row in page.rows)
    assert "not independent" not in read(report / "index.html").words


def test_a_ratio_of_few_images_stands_without_an_interval(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=4))
    assert run.results["FMR"]["low"] is None
    written = write_report([run], tmp_path / "report")
    assert 'title="no interval from one source image or prompt alone">no interval<' in written.read_text()  # steps of a class
    page = read(written)
    assert "stands without an interval, so it shows nothing yet: too few images for an interval" in page.words
    assert "no interval, 4 images" in page.words
    assert "None" not in page.words


def copied(run: Run, path: Path, **provenance: str) -> Run:
    """A run like it, of which more is known."""
    shutil.copytree(run.path, path)
    content = json.loads((path / "run.json").read_text())
    content["provenance"] |= provenance
    (path / "run.json").write_text(json.dumps(content))
    return open_run(path)
