"""Every command's help can be read whole on a terminal of 80 columns, and shows an example; the list of all imports none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import COMMANDS, app, load
from tests.cli.stored import call
from tests.report.made import Plan, build
from tests.worlds import FAKES


def help_of(*path: str) -> str:
    found = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_is_whole_fits_and_has_an_example(name: str) -> None:
    command, text = load(name), help_of(name)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    words = " ".join(text.split())
    for option in command.params:
        assert " ".join((getattr(option, "help", None) or "").split()) in words
    assert command.help.splitlines()[0] == COMMANDS[name].summary
    assert f"counterfoil {name}" in text.partition("Usage:")[2].partition("\n")[2]


def test_commands_are_listed_whole_under_headings() -> None:
    listed = help_of()
    headings = list(dict.fromkeys(entry.heading for entry in COMMANDS.values()))
    places = [listed.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places) and max(map(len, listed.splitlines())) <= 80
    for name, entry in COMMANDS.items():
        assert f"  {name} " in listed and entry.summary in " ".join(listed.split())


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("app.app(['--help'], standalone_mode=False)", ["numpy", "torch", "pydantic", "pyarrow", "yaml", "scipy", "rich.table"]),
        ("for name in app.COMMANDS: app.load(name)", ["torch"]),
    ],
    ids=["the list of commands imports no command", "no command needs torch for its help"],
)
def test_help_imports_little(code: str, unwanted: list[str]) -> None:
    program = f"import sys; from counterfoil.cli import app\n{code}\nassert not {{*{unwanted}}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_a_misspelt_command_is_answered_by_the_one_meant() -> None:
    found = CliRunner().invoke(app, ["reprot"])
    assert found.exit_code == 2 and "Did you mean 'report'" in found.output


# `--json`: every command that prints results has it; `-` prints JSON alone, a file is written next to the same text


WITHOUT = {"serve", "demo"}  # print no results
MODEL, SPEC = f"python:{FAKES}:TinyModel", ["--generator", "brightness:", "--oracle", "daylight:", "--size", "16"]

CALLS: dict[str, tuple[list[str], str]] = {
    "run": (["run", "--dry-run", "--model", MODEL, "--data", "lab:wardrobe", *SPEC], "cost"),
    "list": (["list", "models"], "summary"),
    "report": (["report", "a", "-o", "page"], "page"),
    "compare": (["compare", "a", "b"], "tables"),
    "compare of slices": (["compare", "a", "b", "--by", "class"], "tables"),
    "compare of transfer": (["compare", "a", "--transfer"], "tables"),
    "gate": (["gate", "a", "--min", "fmr=99"], "passed"),
    "export": (["export", "a", "-o", "set"], "surrogates"),
    "export of a result": (["export", "a", "--format", "result", "-o", "result.json"], "result"),
    "board": (["board", "a", "b", "-o", "site", "--images", "0"], "page"),
    "review status": (["review", "a", "--status"], "agreement"),
    "review verdicts": (["review", "a", "--verdicts"], "kept"),
    "study": (["study"], "fmr/6"),
    "study of a table": (["study", "fmr/6"], "rows"),
}


def keys(value: Any) -> set[str]:
    """Every key of some JSON."""
    if isinstance(value, dict):
        return value.keys() | {key for each in value.values() for key in keys(each)}
    return {key for each in value for key in keys(each)} if isinstance(value, list) else set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_results_can_print_json(name: str) -> None:
    assert ("--json" in {word for option in load(name).params for word in option.opts}) is (name not in WITHOUT)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with images."""
    folder = tmp_path_factory.mktemp("runs")
    for model in "ab":
        build(folder / model, Plan(model=f"lab:{model}"))
    return folder


@pytest.mark.parametrize("name", CALLS)
def test_json_is_printed_alone_or_written_beside_the_text(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("counterfoil.web.review.secrets.token_hex", lambda length: "0" * 2 * length)  # a review's key
    words, key = CALLS[name]
    answers = []
    for number, more in enumerate(([], ["--json", "out.json"], ["--json", "-"])):
        shutil.copytree(runs, tmp_path / str(number))
        monkeypatch.chdir(tmp_path / str(number))
        answers.append(call(*words, *more))
    plain, beside, alone = answers
    assert beside == plain and plain[1].strip() and plain[0] == alone[0]
    told = json.loads(alone[1])
    assert told == json.loads((tmp_path / "1" / "out.json").read_text()) and key in keys(told)
