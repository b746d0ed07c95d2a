"""The frame around studies: names, options, claims, the command, and what it leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil import studies
from counterfoil.cli.app import app
from counterfoil.core.errors import BadSpec, CounterfoilError, UnknownName
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.studies import runner
from counterfoil.studies.base import Claim, Findings, StudySettings, gap, show, table, world
from counterfoil.studies.runs import Runs
from tests.studies.conftest import MODEL, OTHER, lab_settings

pytestmark = pytest.mark.xdist_group("studies")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", studies.NAMES)
def test_every_study_is_what_its_name_says_and_is_in_the_guide(name: str) -> None:
    study = studies.load(name)
    assert study.name == name
    known = world()
    assert known is not None and len(known.studies[name]["models"]) >= study.least_models
    assert set(known.studies[name].get("options", {})) <= set(study.options)
    assert study.published
    assert f"| `{name}` |" in (ROOT / "docs" / "howto" / "studies.md").read_text(encoding="utf-8")


def test_an_unknown_study_gets_a_hint() -> None:
    with pytest.raises(UnknownName, match="did you mean 'transfer'"):
        studies.load("transfr")


def test_intervals_that_touch_show_nothing() -> None:
    low, high = Estimate(40, 35, 45, 9), Estimate(60, 55, 65, 9)
    assert show("c", gap(high, low)).holds is True
    assert show("c", gap(low, high)).holds is False
    assert show("c", gap(replace(high, low=44), low)).holds is None
    assert show("c", gap(Estimate(None, None, None, 0, "no image"), low)).evidence == "undefined: no image"
    assert [show("c", each).holds for each in (high, Estimate(-5, -9, -1, 9), Estimate(1, -1, 3, 9))] == [True, False, None]


def test_a_difference_is_small_where_its_whole_interval_is() -> None:
    found = [Estimate(1, -2, 4, 9), Estimate(1, -2, 6, 9), Estimate(-8, -9, -6, 9)]
    assert [show("c", each, within=5).holds for each in found] == [True, None, False]


def test_only_the_lab_can_fail_a_claim() -> None:
    findings = Findings((), (Claim("a", None, ""), Claim("b", True, ""), Claim("c", False, "", required=False)))
    lab = lab_settings()
    study = studies.load("variants")
    assert runner.StudyReport(study, lab, findings, 0, 0).failed == ["a"]
    own = replace(lab, models=(PartSpec(name="timm:resnet18"),))
    assert runner.StudyReport(study, own, findings, 0, 0).failed == []


def test_findings_as_text_name_undefined_values() -> None:
    rows = [(("m",), {"FMR": Estimate(-1.25, -2, 3, 7)}), (("n",), {"FMR": Estimate(None, None, None, 0, "why")})]
    text = "\n".join(Findings((table("T", ("model",), rows),), (Claim("c", False, "e"),), ("note",)).lines())
    assert "−1.2 (−2.0 to 3.0), 7" in text
    assert "undefined: why" in text
    assert "DOES NOT HOLD  c: e" in text


def test_options_are_checked_by_name_and_kind(runs: Runs) -> None:
    def run_with(**options: object) -> None:
        runner.run("step-size", replace(runs.settings, models=(PartSpec(name=MODEL),), options=options), runs)

    with pytest.raises(BadSpec, match="step-size has no such option; it has steps, budgets"):
        run_with(stepz=1)
    with pytest.raises(BadSpec, match="takes a list of float"):
        run_with(steps="small")
    assert runner._check(studies.load("variants"), {"generators": None}) == {"generators": ()}  # as in --set generators=


def test_the_command_prints_writes_and_goes_on(tiny: StudySettings, tmp_path: Path) -> None:
    asked = [
        "study", "greyscale", "--model", MODEL, "--model", OTHER, "--data", tiny.data.name, "--generator", "pixels:l2",
        "--oracle", "daylight:", "--images", "8", "--out", str(tmp_path), "--set", "budget=2", "--set", "generator.epsilon=0.2",
    ]  # fmt: skip
    first, second = (CliRunner().invoke(app, asked) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert "published counterpart: Table 10" in first.output
    written = json.loads((tmp_path / "greyscale.json").read_text(encoding="utf-8"))
    assert (written["images"], written["generator"]["options"], written["search"]) == (8, {"epsilon": 0.2}, {"budget": 2})
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_models_that_do_not_say_their_size_are_told_it(tiny: StudySettings, tmp_path: Path) -> None:
    made = tmp_path / "made.py"
    made.write_text(
        "import torch\nfrom tests.fakes import TinyModel\n\n"
        "class Plain(torch.nn.Module):\n    def forward(self, images):\n        return TinyModel().logits(images)\n\n"
        "def load():\n    return Plain(), list(TinyModel().classes)\n"
    )
    asked = [
        "study", "greyscale", "--model", f"python:{made}:load", "--model", OTHER, "--data", tiny.data.name,
        "--generator", "pixels:", "--oracle", "daylight:", "--images", "4", "--out", str(tmp_path / "out"), "--set", "budget=1",
    ]  # fmt: skip
    assert "--size" in str(CliRunner().invoke(app, asked).exception)
    shown = CliRunner().invoke(app, [*asked, "--size", "16"])
    assert shown.exit_code == 0, shown.exception
    assert json.loads((tmp_path / "out" / "greyscale.json").read_text(encoding="utf-8"))["size"] == 16


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["all", "--only", "nothing"], "no such study"),
        (["greyscale", "--set", "budgt=2"], "budget"),
        (
            ["greyscale", "--set", "force=true"],
            "not for a study, which takes keys of the search, options of data, generator, oracle",
        ),
        (["greyscale", "--set", "model.weights=x"], "not for a study"),
        (["greyscale", "--model", "lab:narrow"], "takes 2 models or more"),
        (["greyscale", "runs/a"], "go with a published table"),
        (["augmentation", "--model", "daylight:x"], "daylight"),
    ],
)
def test_wrong_use_is_one_line(asked: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", *asked, "--out", str(tmp_path)])
    assert isinstance(result.exception, CounterfoilError)
    assert said in str(result.exception) and "\n" not in str(result.exception)
    assert result.exception.exit_code == 2
