"""Studies of runs that came to nothing: one image, nothing accepted, the same model twice. An answer, not a NaN."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadPart, UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.studies import runner
from counterfoil.studies.base import StudySettings
from counterfoil.studies.runs import Runs
from tests.studies.conftest import MODEL, OTHER

pytestmark = pytest.mark.xdist_group("studies")

THIRD = f"{MODEL.rpartition(':')[0]}:Third"
OPTIONS: dict[str, dict[str, Any]] = {
    "variants": {"generators": ("brightness:",)},
    "transfer": {},
    "generators": {"generators": ("brightness:",)},
    "oracles": {"oracles": (f"classifier:{THIRD}",)},
    "step-size": {"steps": (0.05, 0.5), "budgets": (1,)},
    "fgsm-start": {},
    "adversarial-training": {},
    "greyscale": {},
    "surrogates": {"made_against": 1},
}


def run(name: str, settings: StudySettings, folder: Path) -> runner.StudyReport:
    models = tuple(PartSpec(name=each) for each in (MODEL, OTHER, THIRD))
    return runner.run(name, replace(settings, folder=folder, models=models, options=OPTIONS[name]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("degenerate")


@pytest.mark.parametrize("name", ["variants", "oracles"])
def test_an_oracle_that_accepts_nothing_is_refused_in_one_line(name: str, tiny: StudySettings, folder: Path) -> None:
    strict = PartSpec(name="daylight:", options={"darkest": 2.0})
    with pytest.raises(BadPart, match="rejects the plain reconstruction of all 4 images tried") as caught:
        run(name, replace(tiny, oracle=strict, images=4), folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "oracles"])  # whose second oracle rejects the only image
def test_one_image_gives_numbers_or_reasons(name: str, tiny: StudySettings, folder: Path) -> None:
    report = run(name, replace(tiny, images=1), folder)
    cells = [cell for table in report.findings.tables for row in table.rows for cell in row]
    assert all(cell.value is not None or cell.note for cell in cells if isinstance(cell, Estimate))
    json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))  # NaN would have been refused in writing
    assert all(check.holds is not False or not check.required for check in report.findings.claims)


def test_a_model_that_was_interrupted_twice_is_asked_again(tiny: StudySettings, tmp_path: Path) -> None:
    runs = Runs(replace(tiny, folder=tmp_path))
    run = runs.make(PartSpec(name=MODEL))
    few = [replace(each, model=OTHER) for each in run.predictions() if each.picture == "clean"]
    for _ in range(3):
        run.append(predictions=few)
    assert runs.observe(run, model=PartSpec(name=OTHER)).columns["clean"].all()


def test_a_model_against_itself_is_refused(tiny: StudySettings, tmp_path: Path) -> None:
    settings = replace(tiny, folder=tmp_path, models=(PartSpec(name=MODEL),) * 2, images=8)
    with pytest.raises(UsageError, match="twice"):
        runner.run("transfer", settings, Runs(settings))
