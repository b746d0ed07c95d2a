"""`--json`: every command that prints results has it; `-` prints JSON alone, a file is written next to the same text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from counterfoil.cli.app import COMMANDS, load
from tests.cli.stored import call
from tests.report.made import Plan, build
from tests.worlds import FAKES

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
    "board": (["board", "a", "b", "-o", "site", "--pictures", "0"], "page"),
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
