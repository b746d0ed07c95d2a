"""Studies in one session: side by side, sharing runs, and the table of what has to hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil import studies
from counterfoil.cli.app import app
from counterfoil.core.spec import PartSpec
from counterfoil.studies import runner
from counterfoil.studies.base import Claim, Findings, StudySettings
from tests.studies.conftest import MODEL, OTHER, lab_settings

pytestmark = pytest.mark.xdist_group("studies")


def test_a_study_that_fails_does_not_keep_the_others_from_running(tiny: StudySettings, tmp_path: Path) -> None:
    models = tuple(PartSpec(name=name) for name in (MODEL, OTHER))
    base = replace(tiny, folder=tmp_path / "two", models=models, images=6)
    names = ["greyscale", "transfer", "oracle-attack"]
    two = {each.name: each for each in runner.run_all(names, base)}
    assert len(list((tmp_path / "two" / "runs").iterdir())) == 2
    failed = two.pop("oracle-attack")
    assert isinstance(failed, runner.FailedStudy) and "gives no probabilities" in failed.problem
    assert all(isinstance(two[name], runner.StudyReport) for name in names[:2])


def test_the_table_of_all_tells_shown_from_open_denied_failed_and_untested() -> None:
    lab = lab_settings()

    def report(name: str, *holds: bool | None) -> runner.StudyReport:
        checks = tuple(Claim(f"claim {place}", each, "e") for place, each in enumerate(holds))
        return runner.StudyReport(studies.load(name), lab, Findings((), (*checks, Claim("r", False, "", required=False))), 0, 0)

    outcomes = {
        "variants": report("variants", True, None),
        "transfer": report("transfer", False),
        "greyscale": report("greyscale"),
        "sparse": runner.FailedStudy("sparse", "no room"),
    }
    lines = runner.summary(outcomes, ["variants", "transfer", "greyscale", "sparse", "oracles"])
    answers = [(line.study, line.answer, line.good) for line in lines]
    assert answers == [
        ("variants", "holds", True),
        ("variants", "not shown", False),
        ("transfer", "DOES NOT HOLD", False),
        ("greyscale", "reported", True),
        ("sparse", "FAILED", False),
        ("oracles", "not tested", True),
    ]
    text = list(runner.summary_text(lines))
    assert len(text) == 7 and text[2].startswith("   ")  # a study's name once


def test_the_command_for_all_exits_with_one_if_a_study_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(names: list[str], *_: object) -> list[runner.StudyReport | runner.FailedStudy]:
        return [runner.FailedStudy(name, "the disk is full") for name in names]

    monkeypatch.setattr(runner, "run_all", run)
    result = CliRunner().invoke(app, ["study", "all", "--only", "greyscale", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "FAILED" in result.output and "the disk is full" in result.output
    assert "not shown: 1 of what must hold" in result.output
    written = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["studies"]
    assert [each["answer"] for each in written].count("not tested") == len(studies.NAMES) - 1
