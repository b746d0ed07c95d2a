"""`gate` and `compare` over painted sets: accuracy by kind of nuisance, vision-language models and classifiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import protocols
from counterfoil.cli.results import show
from counterfoil.core.records import Verdict
from counterfoil.protocols.imagenet_d import imagenet_d
from counterfoil.protocols.imagenet_d.results import results
from counterfoil.report.export import export
from counterfoil.store import Run, open_run
from tests.cli.stored import call
from tests.protocols.imagenet_d.world import Scripted, SquareModel, make_parts, spec


@pytest.fixture(scope="module")
def mined_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return protocols.run(spec(), tmp_path_factory.mktemp("painted") / "run", given=make_parts())


def test_a_bar_may_be_about_one_kind_of_nuisance(mined_run: Run) -> None:
    found = results(mined_run)["models"]["fake:unseen"]
    value = found["by_nuisance"]["background"]["mined"]
    bar = ("gate", mined_run.path, "--model", "fake:unseen", "--point", "--min")
    assert call(*bar, f"accuracy.background={value['value']:.3f}")[0] == 0
    code, output = call(*bar, f"accuracy.background={value['value'] + 1}")
    assert code == 1 and f"(n {value['n']}, of 7 prompts)" in output
    assert call(*bar, f"accuracy_painted={found['painted']['value'] - 0.01}")[0] == 0
    assert (
        call("gate", mined_run.path, "--model", "fake:unseen", "--point", "--max", f"drop={found['drop']['value'] + 0.01}")[0]
        == 0
    )


def test_which_model_is_gated_has_to_be_said(mined_run: Run) -> None:
    code, complaint = call("gate", mined_run.path, "--min", "accuracy=10")
    assert code == 2 and "--model: fake:unseen, fake:shortcut, fake:good" in complaint
    code, complaint = call("gate", mined_run.path, "--model", "fake:other", "--min", "accuracy=10")
    assert code != 0 and "no predictions by model 'fake:other'" in complaint


@pytest.mark.parametrize("asked", [("--min", "accuracy=0"), ("--max", "drop=100"), ("--against", "RUN")])
def test_a_surrogate_is_not_judged_on_the_set_it_chose(mined_run: Run, asked: tuple[str, str]) -> None:
    option, value = asked
    bar = (option, mined_run.path if value == "RUN" else value)
    code, complaint = call("gate", mined_run.path, "--model", "fake:a", *bar)
    assert code == 2 and "fake:a is a surrogate" in complaint and "accuracy_painted" in complaint


def test_a_surrogate_is_judged_on_what_was_painted(mined_run: Run) -> None:
    assert call("gate", mined_run.path, "--model", "fake:a", "--min", "accuracy_painted=1")[0] == 0


def test_models_are_compared_on_the_set_and_surrogates_are_not(mined_run: Run) -> None:
    assert imagenet_d.models(mined_run, scored=True) == ["fake:unseen", "fake:shortcut", "fake:good"]
    code, output = call("compare", mined_run.path)
    assert code == 0 and output.startswith("3 models, paired by 69 images of 23 prompts\n")
    assert "fake:good" in output and "fake:a" not in output
    assert "exact sign-flip test on images that count for both, those of one prompt together" in output
    assert "McNemar" not in output and "the order by accuracy_painted" in output


def test_what_a_run_made_is_counted_in_pictures(mined_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show(mined_run)
    assert "oracle fake:oracle: 72 images, 21 in the set\n" in capsys.readouterr().out


def test_a_set_that_was_made_before_has_one_accuracy(mined_run: Run, tmp_path: Path) -> None:
    export(mined_run, tmp_path / "set")
    asked = {
        "painter": None,
        "surrogates": [],
        "oracle": None,
        "data": str(tmp_path / "set"),
        "models": ["fake:unseen", "fake:good"],
    }
    run = protocols.run(spec(**asked), tmp_path / "run", given=make_parts())
    code, output = call("compare", run.path)
    assert code == 0 and "accuracy: accuracy on the set" in output
    assert "drop" not in output and "accuracy_painted" not in output
    code, complaint = call("gate", run.path, "--model", "fake:good", "--max", "drop=3")
    assert code == 2 and "no number called 'drop'; there are accuracy" in complaint


def test_a_surrogate_alone_on_the_set_it_chose_is_named(mined_run: Run, tmp_path: Path) -> None:
    export(mined_run, tmp_path / "set")
    asked = {"painter": None, "surrogates": [], "oracle": None, "data": str(tmp_path / "set")}
    for name in ("fake:good", mined_run.spec["surrogates"][0]["name"]):
        protocols.run(spec(**asked, models=[name]), tmp_path / name.partition(":")[2], given=make_parts())
    surrogate = tmp_path / mined_run.spec["surrogates"][0]["name"].partition(":")[2]
    assert open_run(surrogate).results["model"]["name"] == mined_run.spec["surrogates"][0]["name"]
    code, complaint = call("compare", tmp_path / "good", surrogate)
    assert code == 2 and f"{surrogate}: tests only surrogates" in complaint


def test_a_model_must_not_fall_behind_another_on_the_same_set(tmp_path: Path) -> None:
    parts = make_parts(poor=SquareModel(blind=("forest", "snow")))
    for name in ("good", "poor"):
        protocols.run(spec(models=[f"fake:{name}"]), tmp_path / name, given=parts)
    assert call("gate", tmp_path / "good", "--against", tmp_path / "poor")[0] == 0
    code, output = call("gate", tmp_path / "poor", "--against", tmp_path / "good", "--allow-unproven")
    assert code == 1 and "FAIL  accuracy no worse than the baseline: worse" in output


@pytest.fixture(scope="module")
def run_with_chats(tmp_path_factory: pytest.TempPathFactory) -> Run:
    parts = make_parts(chat=Scripted(lambda first, second: first), blunt=Scripted(lambda first, second: "I cannot tell."))
    spoken = spec(chats=["fake:chat", "fake:blunt"])
    return protocols.run(spoken, tmp_path_factory.mktemp("asked") / "run", given=parts)


def test_a_vision_language_model_is_gated_by_what_it_was_asked(run_with_chats: Run) -> None:
    value = results(run_with_chats)["models"]["fake:chat"]["mined"]
    gate = ("gate", run_with_chats.path, "--model", "fake:chat", "--point")
    assert call(*gate, "--min", f"accuracy={value['value']:.3f}")[0] == 0
    code, output = call(*gate, "--min", f"accuracy={value['value'] + 1}")
    assert code == 1 and f"(n {value['n']}, of 7 prompts)" in output
    for bar in (("--max", "drop=100"), ("--min", "accuracy_painted=0")):  # it saw nothing that mining rejected
        code, output = call(*gate, *bar)
        assert code == 1 and "undefined: " in output
    code, output = call("gate", run_with_chats.path, "--model", "fake:blunt", "--point", "--min", "accuracy=1")
    assert code == 1 and "0.0 %" in output


@pytest.mark.parametrize("command", [("--min", "accuracy=1"), ("--against", "RUN")])
def test_a_model_that_was_never_asked_is_one_line(run_with_chats: Run, command: tuple[str, str]) -> None:
    code, complaint = call(
        "gate", run_with_chats.path, "--model", "fake:caht", *(run_with_chats.path if each == "RUN" else each for each in command)
    )
    assert code == 2 and "no predictions by model 'fake:caht'; there are some by" in complaint and "\n" not in complaint


def test_of_a_baseline_that_tests_several_the_same_model_is_taken(run_with_chats: Run) -> None:
    code, output = call("gate", run_with_chats.path, "--model", "fake:chat", "--allow-unproven", "--against", run_with_chats.path)
    assert code == 0 and "cannot be told apart" in output


def test_a_comparison_says_who_chose_between_two_names(run_with_chats: Run) -> None:
    code, output = call("compare", run_with_chats.path, "--metric", "accuracy", "--metric", "drop")
    assert code == 0 and output.startswith("fake:chat, fake:blunt chose between two names, so half right is chance")
    accuracy, _, drop = output.partition("drop: ")
    assert "fake:good − fake:blunt" in accuracy and "undefined" in drop
    assert "nothing to compare" in drop and "nan" not in output


def test_no_number_is_made_up_for_what_was_not_asked(run_with_chats: Run) -> None:
    found = results(run_with_chats)["models"]["fake:chat"]
    assert found["mined"]["n"] == results(run_with_chats)["counts"]["kept"]
    for name in ("painted", "drop", "top5"):
        assert found[name]["value"] is None and found[name]["note"].startswith("asked ")
    assert found["by_nuisance"]["background"]["painted"]["value"] is None
    assert found["by_nuisance"]["background"]["mined"]["value"] == found["mined"]["value"]  # all that was kept is of that kind


def test_a_gate_says_what_becomes_of_pictures_that_are_undecided(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    kept = [trial.trial_id for trial in run.trials if trial.ending == "made"]
    bar = ("gate", run.path, "--model", "fake:unseen", "--min", "accuracy_painted=1")
    assert "undecided" not in call(*bar)[1]
    with run.appending() as rows:
        rows.add(verdicts=[Verdict(trial_id, "made", "unsure", None, 0.0, -1) for trial_id in kept[1:]])
        rows.add(verdicts=[Verdict(kept[0], "made", "unsure", True, 0.0, -1)])
    said = call(*bar, "--oracle", "unsure")[1]
    assert f"note  {len(kept) - 1} images undecided by unsure, counted as if they showed their object" in said
    with run.appending() as rows:
        rows.add(verdicts=[Verdict(trial_id, "made", "human", True, 1.0, -1) for trial_id in kept[1:]])
    assert "note  1 image undecided by people, counted in accuracy_painted alone" in call(*bar)[1]
