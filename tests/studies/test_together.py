"""Studies in one sitting: side by side, sharing runs, and the table of what has to hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil import studies
from counterfoil.cli.app import app
from counterfoil.core.spec import PartSpec
from counterfoil.studies import runner, summary
from counterfoil.studies.bench import Settings
from counterfoil.studies.findings import Check, Findings
from tests.studies.conftest import MODEL, OTHER

pytestmark = pytest.mark.xdist_group("studies")


def test_a_study_that_fails_does_not_keep_the_others_from_running(tiny: Settings, tmp_path: Path) -> None:
    models = tuple(PartSpec(name=name) for name in (MODEL, OTHER))
    base = replace(tiny, folder=tmp_path / "two", models=models, images=6)
    names = ["greyscale", "transfer", "oracle-attack"]
    two = {each.name: each for each in runner.run_all(names, base)}
    assert len(list((tmp_path / "two" / "runs").iterdir())) == 2
    failed = two.pop("oracle-attack")
    assert isinstance(failed, runner.Failed) and "gives no probabilities" in failed.problem
    assert all(isinstance(two[name], runner.Report) for name in names[:2])


def test_the_table_of_all_tells_shown_from_open_denied_failed_and_untested() -> None:
    lab = Settings(Path(), models=(PartSpec(name="lab:narrow"),))

    def report(name: str, *holds: bool | None) -> runner.Report:
        checks = tuple(Check(f"claim {place}", each, "e") for place, each in enumerate(holds))
        return runner.Report(studies.load(name), lab, Findings((), (*checks, Check("r", False, "", required=False))), 0, 0)

    outcomes = {
        "variants": report("variants", True, None),
        "transfer": report("transfer", False),
        "greyscale": report("greyscale"),
        "sparse": runner.Failed("sparse", "no room"),
    }
    lines = summary.summary(outcomes, ["variants", "transfer", "greyscale", "sparse", "oracles"])
    answers = [(line.study, line.answer, line.good) for line in lines]
    assert answers == [
        ("variants", "holds", True),
        ("variants", "not shown", False),
        ("transfer", "DOES NOT HOLD", False),
        ("greyscale", "reported", True),
        ("sparse", "FAILED", False),
        ("oracles", "not tested", True),
    ]
    text = list(summary.as_text(lines))
    assert len(text) == 7 and text[2].startswith("   ")  # a study's name once


def test_the_command_for_all_exits_with_one_if_a_study_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(names: list[str], *_: object) -> list[runner.Outcome]:
        return [runner.Failed(name, "the disk is full") for name in names]

    monkeypatch.setattr(runner, "run_all", run)
    result = CliRunner().invoke(app, ["study", "all", "--only", "greyscale", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "FAILED" in result.output and "the disk is full" in result.output
    assert "not shown: 1 of what has to hold" in result.output
    written = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["studies"]
    assert [each["answer"] for each in written].count("not tested") == len(studies.NAMES) - 1
