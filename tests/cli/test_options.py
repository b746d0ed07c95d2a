"""Options declared once: a specification shared by commands, results as JSON, and a dry run that knows every part's options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from counterfoil.cli import options
from counterfoil.cli.app import app
from counterfoil.cli.options import output
from counterfoil.core.errors import CounterfoilError, UsageError
from tests.cli.stored import call


def shared_options(
    model: Annotated[str, typer.Option(help="A model.")], seed: Annotated[int, typer.Option(help="A seed.")] = 0
) -> Any:
    return model, seed


def test_a_command_takes_the_parameters_of_what_it_shares() -> None:
    found: list[object] = []

    @options.takes(shared_options)
    def command(values: Any, images: Annotated[int, typer.Option(help="Images.", min=1)] = 8) -> None:
        """Do it."""
        found.append((values, images))

    single = typer.Typer()
    single.command()(command)
    assert CliRunner().invoke(single, ["--model", "m", "--seed", "3", "--images", "2"]).exit_code == 0
    assert found == [(("m", 3), 2)]
    shown = CliRunner().invoke(single, ["--help"]).output
    assert all(text in shown for text in ("Do it.", "A model.", "A seed.", "Images."))
    assert CliRunner().invoke(single, ["--images", "0", "--model", "m"]).exit_code == 2


def test_a_file_is_read_and_options_override_it(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("model: lab:narrow\nseed: 3\nsearch: {budget: 5}\n")
    values = options.specification(file=tmp_path / "s.yaml", seed=4, precision="float32", settings=["step=0.1"])
    assert values["model"] == "lab:narrow" and values["seed"] == 4
    assert values["search"] == {"budget": 5, "step": 0.1} and values["engine"] == {"precision": "float32"}


RUN = ["run", "--model", "lab:narrow", "--data", "lab:wardrobe", "--generator", "lab:kl", "--oracle", "lab:clip", "--dry-run"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--set", "oracle.foo=1"], "foo"),
        (["--generator", "pixels:l2", "--set", "generator.foo=1"], "foo"),
        (["--set", "model.foo=1"], "foo"),
        (["--set", "data.counts=3"], "counts"),
        (["--oracle", "clipp:x"], "did you mean 'clip'"),
        (["--model", "x.pth"], "x.pth"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would_refuse(more: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, [*RUN, *more])
    assert isinstance(result.exception, CounterfoilError), result.output
    assert result.exception.exit_code == 2
    assert problem in str(result.exception).replace("Did", "did") and "\n" not in str(result.exception)


def test_a_dry_run_prints_a_specification_that_runs() -> None:
    result = CliRunner().invoke(app, [*RUN, "--set", "oracle.threshold=0.1"])
    assert result.exit_code == 0, result.exception
    assert "threshold: 0.1" in result.output


def test_a_place_for_json_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    code, problem = call("score", tmp_path / "missing", "--model", "lab:narrow", "--json", tmp_path)
    assert code == 2 and "is a folder" in problem


# Files that commands write at their end are refused before any work


def test_a_file_is_left_alone_until_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    write, first = output(tmp_path / "old", "--json"), output(tmp_path / "new" / "file", "--json")
    assert (tmp_path / "old").read_text() == "old" and not list((tmp_path / "new").iterdir())
    write(b"1")
    first(b"2")
    assert (tmp_path / "old").read_text() == "1" and (tmp_path / "new" / "file").read_text() == "2"
    output(None, "--json")(b"nothing is asked for")


def test_what_goes_wrong_later_is_said_in_a_line_too(tmp_path: Path) -> None:
    write = output(tmp_path / "file", "--json")
    (tmp_path / "file").mkdir()
    with pytest.raises(UsageError, match=r"--json .*file: cannot be written \(Is a directory\); choose another file"):
        write(b"")


@pytest.mark.parametrize(
    "words",
    [
        ["gate", "missing", "--min", "sa=1", "--junit"],
        ["export", "missing", "--format", "result", "--out"],
    ],
)
def test_commands_look_at_their_file_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file, where a folder is needed")
    for path, said in (
        ("taken/x", "cannot be written (Not a directory); choose another file"),
        (".", "is a folder; name a file in it"),
    ):
        refused = CliRunner().invoke(app, [*words, path]).exception
        assert isinstance(refused, UsageError) and str(refused) == f"{words[-1]} {path}: {said}"
