"""`counterfoil compare` over runs on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.core.records import Prediction
from tests.cli.stored import call, store_run


def test_two_models_far_apart_are_told_apart_and_a_twin_is_not(tmp_path: Path) -> None:
    frail, firm = store_run(tmp_path / "a", "lab:narrow", kept=0.2), store_run(tmp_path / "b", "lab:diverse", kept=0.9)
    code, output = call("compare", frail, firm, "--metric", "FMR", "--metric", "sa")
    assert code == 0
    assert "2 models, paired by 60 source images" in output
    assert "lab:diverse is higher" in output
    assert "Kendall's tau with the order by SA" in output
    assert "Not the same test" not in output
    twin = store_run(tmp_path / "c", "lab:narrow", kept=0.2)
    code, output = call("compare", frail, twin)
    assert code == 0
    assert "lab:narrow (a)" in output
    assert "cannot tell apart: the same answer on every image" in output
    assert "is higher" not in output


def test_another_generator_is_another_test(tmp_path: Path) -> None:
    runs = [
        store_run(tmp_path / f"{model} {generator}", f"lab:{model}", kept=kept, generator={"name": generator})
        for model, kept in (("narrow", 0.2), ("diverse", 0.9))
        for generator in ("lab:vqgan", "lab:ddpm")
    ]
    code, output = call("compare", *runs, "--metric", "FMR")
    assert code == 0
    assert output.startswith("Not the same test")
    assert "generator.name (lab:vqgan / lab:ddpm)" in output.splitlines()[0]
    assert "FMR: lab:vqgan against lab:ddpm: 1.00 (1.00 to 1.00)" in output


def test_models_scored_on_the_same_pictures_are_compared(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a")
    code, complaint = call("compare", path)
    assert code == 2
    assert "--scored" in complaint
    run = store.open_run(path)
    guided = [each for each in run.trials if each.arm == "guided"]
    seen = [(each, "clean") for each in guided] + [(each, "made") for each in guided if each.validated]
    run.append(predictions=[Prediction(each.trial_id, what, "timm:other", each.label, True, 1.0, 1.0) for each, what in seen])
    code, output = call("compare", path, "--scored", "--metric", "PA")
    assert code == 0
    assert "timm:other is higher" in output


def test_ids_that_stand_for_other_images_are_refused(tmp_path: Path) -> None:
    one, two = store_run(tmp_path / "a"), store_run(tmp_path / "b", "lab:diverse", pixels="q")
    code, complaint = call("compare", one, two)
    assert code == 2
    assert "the same image ids stand for other images" in complaint


@pytest.mark.parametrize(
    ("extra", "said"),
    [(["--metric", "fmrr"], "did you mean 'FMR'?"), (["nowhere"], "not a run directory")],
)
def test_wrong_use(tmp_path: Path, extra: list[str], said: str) -> None:
    code, complaint = call("compare", store_run(tmp_path / "a"), store_run(tmp_path / "b", "lab:diverse"), *extra)
    assert code == 2
    assert said in complaint
    assert "\n" not in complaint


def test_a_run_that_is_not_finished_is_named(tmp_path: Path) -> None:
    runs = store_run(tmp_path / "a"), store_run(tmp_path / "b", "lab:diverse")
    assert "Not finished" not in call("compare", *runs)[1]
    (runs[1] / "results.json").unlink()
    assert f"only the images done so far count: {runs[1]}." in call("compare", *runs)[1]


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a")
    code, complaint = call("compare", path, path)
    assert code == 2
    assert "given twice" in complaint


def test_the_transfer_matrix_of_models_scored_on_each_others_pictures(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a", "m1")
    run = store.open_run(path)
    run.append(predictions=[replace(each, model="m2") for each in run.predictions("m1")])
    code, output = call("compare", path, "--transfer")
    assert code == 0
    head, row = (line.split() for line in output.splitlines()[1:3])
    assert head == ["made", "against", "m1", "m2"]
    assert row[0] == "m1"
    assert "harm: points of accuracy" in output
    code, complaint = call("compare", path, "--transfer", "--metric", "VR")
    assert (code, "a cell has no VR" in complaint) == (2, True)
