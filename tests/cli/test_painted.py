"""`gate` and `compare` over painted sets: accuracy by kind of nuisance, vision-language models beside classifiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.metrics.imagenet_d import results
from counterfoil.metrics.outcomes import model_names
from counterfoil.protocols import imagenet_d
from counterfoil.store import Run
from tests.cli.stored import call
from tests.protocols.imagenet_d.world import SquareModel, given, spec


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return imagenet_d.run(spec(), tmp_path_factory.mktemp("painted") / "run", given=given())


def test_a_bar_may_be_about_one_kind_of_nuisance(mined: Run) -> None:
    found = results(mined)["models"]["fake:unseen"]
    value = found["by_nuisance"]["background"]["mined"]
    bar = ("gate", mined.path, "--model", "fake:unseen", "--point", "--min")
    assert call(*bar, f"accuracy.background={value['value']:.3f}")[0] == 0
    code, output = call(*bar, f"accuracy.background={value['value'] + 1}")
    assert code == 1 and f"(n {value['n']})" in output
    assert call(*bar, f"accuracy_painted={found['painted']['value'] - 0.01}")[0] == 0
    assert call("gate", mined.path, "--model", "fake:unseen", "--point", "--max", f"drop={found['drop']['value'] + 0.01}")[0] == 0


def test_which_model_is_gated_has_to_be_said(mined: Run) -> None:
    code, complaint = call("gate", mined.path, "--min", "accuracy=10")
    assert code == 2 and "--model: fake:unseen, fake:shortcut, fake:good" in complaint
    code, complaint = call("gate", mined.path, "--model", "fake:other", "--min", "accuracy=10")
    assert code != 0 and "no predictions by model 'fake:other'" in complaint


def test_models_are_compared_on_the_set_and_surrogates_are_not(mined: Run) -> None:
    assert model_names(mined) == ["fake:unseen", "fake:shortcut", "fake:good"]
    code, output = call("compare", mined.path)
    assert code == 0 and "accuracy: accuracy on the pictures that were made, kept and accepted" in output
    assert "fake:good" in output and "fake:a" not in output


def test_a_model_must_not_fall_behind_another_on_the_same_set(tmp_path: Path) -> None:
    parts = given(poor=SquareModel(blind=("forest", "snow")))
    for name in ("good", "poor"):
        imagenet_d.run(spec(models=[f"fake:{name}"]), tmp_path / name, given=parts)
    assert call("gate", tmp_path / "good", "--against", tmp_path / "poor")[0] == 0
    code, output = call("gate", tmp_path / "poor", "--against", tmp_path / "good")
    assert code == 1 and "FAIL  accuracy no worse than the baseline: worse" in output
