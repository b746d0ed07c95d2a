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
    two = {each.study.name: each for each in runner.run_all(names, base)}
    assert len(list((tmp_path / "two" / "runs").iterdir())) == 2
    failed = two.pop("oracle-attack")
    assert "gives no probabilities" in failed.problem and failed.failed
    assert all(two[name].findings.tables for name in names[:2])


def test_the_table_of_all_tells_shown_from_open_denied_failed_and_untested() -> None:
    lab = lab_settings()

    def report(name: str, *holds: bool | None) -> runner.StudyReport:
        checks = tuple(Claim(f"claim {place}", each, "e") for place, each in enumerate(holds))
        return runner.StudyReport(studies.load(name), lab, Findings((), (*checks, Claim("r", False, "", required=False))), 0, 0)

    outcomes = {
        "variants": report("variants", True, None),
        "transfer": report("transfer", False),
        "greyscale": report("greyscale"),
        "sparse": runner.StudyReport(studies.load("sparse"), lab, problem="no room"),
    }
    summary = runner.summary(outcomes, ["variants", "transfer", "greyscale", "sparse", "oracles"])
    assert [(row[0], row[2]) for row in summary.rows] == [
        ("variants", "holds"),
        ("variants", "not shown"),
        ("transfer", "DOES NOT HOLD"),
        ("greyscale", "reported"),
        ("sparse", "FAILED"),
        ("oracles", "not tested"),
    ]
    assert [len(outcomes[name].failed) for name in ("variants", "transfer", "greyscale", "sparse")] == [1, 1, 0, 1]


def test_the_command_for_all_exits_with_one_if_a_study_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(names: list[str], *_: object) -> list[runner.StudyReport]:
        return [runner.StudyReport(studies.load(name), lab_settings(), problem="the disk is full") for name in names]

    monkeypatch.setattr(runner, "run_all", run)
    result = CliRunner().invoke(app, ["study", "all", "--only", "greyscale", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "FAILED" in result.output and "the disk is full" in result.output
    assert "not shown: 1 of what must hold" in result.output
    written = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["rows"]
    assert [row[2] for row in written].count("not tested") == len(studies.NAMES) - 1
