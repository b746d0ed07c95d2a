"""The command that trains: where it writes, what it builds on, and what it refuses in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadWeights
from counterfoil.lab.garments import ENVIRONMENT
from counterfoil.lab.places import WEIGHTS
from counterfoil.lab.train import __main__ as command
from counterfoil.lab.train import diffusion
from counterfoil.lab.train.recipe import Recipe
from counterfoil.lab.train.run import Run


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Run, Recipe]]:
    """What recipes were asked for; they write a record and no weights to speak of."""
    asked: list[tuple[Run, Recipe]] = []

    def train(run: Run, recipe: Recipe) -> None:
        asked.append((run, recipe))
        run.out.mkdir(parents=True, exist_ok=True)
        (run.out / "model.safetensors").touch()
        stages = [{"steps": recipe.schedule.steps, "seed": done.seed} for done, _ in asked]
        (run.out / "training.json").write_text(json.dumps({"stages": stages}))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "RECIPES", {name: (train, recipe) for name, (_, recipe) in command.RECIPES.items()})
    return asked


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as stopped:
        command.main(list(arguments))
    return stopped.value.code, capsys.readouterr().err


def test_a_model_is_written_below_the_working_directory_and_built_on_those_that_ship(trained: list[tuple[Run, Recipe]]) -> None:
    command.main(["autoencoder"])
    command.main(["narrow", "--steps", "3", "--batch", "5"])
    (first, _), (second, recipe) = trained
    assert (first.out, second.out) == (Path("again/diffusion/vae"), Path("again/narrow"))
    assert first.weights == (WEIGHTS,)
    assert first.data is None, f"a folder here would go before {ENVIRONMENT}"
    assert (recipe.schedule.steps, recipe.schedule.batch) == (3, 5)


def test_models_of_a_folder_go_before_those_that_ship(trained: list[tuple[Run, Recipe]], tmp_path: Path) -> None:
    command.main(["clip", "--weights", str(tmp_path)])
    command.main(["clip", "--weights", str(tmp_path), "--alone"])
    command.main(["clip", "--alone"])
    assert [run.weights for run, _ in trained] == [(tmp_path, WEIGHTS), (tmp_path,), ()]


def test_every_stage_has_its_own_seed(trained: list[tuple[Run, Recipe]]) -> None:
    for more in ([], ["--resume"], ["--resume"]):
        command.main(["narrow", "--seed", "7", *more])
    assert [run.seed for run, _ in trained] == [7, 8, 9]


@pytest.mark.parametrize(
    "arguments", [["--steps", "0"], ["--batch", "-1"], ["--minutes", "0"], ["--minutes", "nan"], ["--steps", "x"]]
)
def test_amounts_that_make_no_sense_are_refused(
    trained: list[tuple[Run, Recipe]], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, said = refused(capsys, "narrow", *arguments)
    assert code == 2 and f"argument {arguments[0]}: a" in said and not trained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "again/narrow: no trained model to go on from; leave out --resume"),
        (["--device", "nowhere"], "no device 'nowhere' to work on"),
        (["--weights", "nowhere"], "nowhere: no such folder"),
        (["--out", str(WEIGHTS / "narrow")], "holds a model that ships"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    trained: list[tuple[Run, Recipe]], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, said = refused(capsys, "narrow", *arguments)
    assert code == 2 and message in said and len(said.splitlines()) == 1 and not trained


def test_a_link_into_the_package_is_no_way_round(
    trained: list[tuple[Run, Recipe]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "again").symlink_to(WEIGHTS)
    assert "holds a model that ships" in refused(capsys, "narrow")[1] and not trained


def test_the_painter_needs_an_autoencoder(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="train 'autoencoder' first"):
        diffusion.train(Run(name="diffusion", out=tmp_path, weights=(tmp_path,)), diffusion.Diffusion())


def test_data_that_is_not_there_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    code, said = refused(capsys, "narrow", "--out", str(tmp_path / "out"))
    assert code == 2 and said.startswith(f"counterfoil: {tmp_path}: no train-images") and len(said.splitlines()) == 1


def test_a_folder_that_cannot_be_written_and_a_seed_that_torch_cannot_take_are_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: list[Any]
) -> None:
    (tmp_path / "file").touch()
    code, said = refused(capsys, "narrow", "--out", str(tmp_path / "file"))
    assert code == 2 and said.startswith(f"counterfoil: {tmp_path / 'file'}: nothing can be written there")
    assert "below 2^62" in refused(capsys, "narrow", "--seed", str(2**62))[1] and not trained


KEPT = ("learning_rate", "weight_decay", "warmup", "averaging", "largest_gradient")


def assert_of_recipe(name: str, training: dict[str, Any], tolerance: float) -> None:
    (stage,) = training["stages"]
    schedule = command.RECIPES[name][1].schedule
    assert stage["batch"] == schedule.batch
    assert stage["steps"] == pytest.approx(schedule.steps, rel=tolerance)
    assert {field: stage["schedule"][field] for field in KEPT} == {field: getattr(schedule, field) for field in KEPT}


@pytest.mark.parametrize("name", command.RECIPES)
def test_a_shipped_model_of_one_stage_took_about_what_its_recipe_says(name: str) -> None:
    training = json.loads((WEIGHTS / command.FOLDERS.get(name, name) / "training.json").read_text())
    if len(training["stages"]) == 1:
        assert_of_recipe(name, training, tolerance=0.04)


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in WEIGHTS.glob("*/again.json")))
def test_a_model_made_again_took_what_its_recipe_says(folder: str) -> None:
    assert_of_recipe(folder, json.loads((WEIGHTS / folder / "again.json").read_text())["training"], tolerance=0.02)
