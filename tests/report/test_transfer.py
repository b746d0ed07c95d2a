"""Models that were scored on a run's pictures: in the heat map, and in the gallery's data."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.records import Prediction
from counterfoil.metrics.transfer import transfer_of
from counterfoil.protocols.reading import write_report
from counterfoil.store import Run, open_run

from .made import build
from .pages import data, read

OTHER = "python:<other>"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on whose pictures another model was scored, which is right on every made one."""
    run = build(tmp_path_factory.mktemp("runs") / "one")
    rows = [
        Prediction(each.trial_id, each.picture, OTHER, each.predicted, each.picture == "made" or each.correct, 0.5, 0.5)
        for each in run.predictions()
    ]
    run.append(predictions=rows)
    return open_run(run.path)


@pytest.fixture(scope="module")
def report(scored: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([scored], tmp_path_factory.mktemp("report") / "one").parent


def test_the_heat_map_has_a_row_for_the_model_and_a_column_for_each(scored: Run, report: Path) -> None:
    figure = next(each for each in read(report / "index.html").all("figure") if each.attributes["id"] == "chart-transfer")
    cell = transfer_of([scored]).cell("python:m", OTHER)
    assert cell is not None
    assert f"{cell.values['FMR'].value:.1f}" in figure.text
    assert OTHER in figure.text
    assert "Among 1 cell of models that had no part" in figure.text


def test_a_run_by_itself_has_no_heat_map(tmp_path: Path) -> None:
    page = read(write_report([build(tmp_path / "run")], tmp_path / "report"))
    assert "chart-transfer" not in {figure.attributes["id"] for figure in page.all("figure")}


def test_the_gallery_knows_what_the_other_model_said(scored: Run, report: Path) -> None:
    assert data(report / "data/run-1.js")["scored"] == [OTHER]
    entries = {(entry["id"], entry["arm"]): entry for entry in data(report / "data/gallery-1.js")["entries"]}
    fooled = entries["img 1.png", "guided"]
    assert fooled["outcome"] == "fooled"
    assert fooled["scored"][OTHER]["made"][1] is True
    assert entries["img 1.png", "random"]["scored"][OTHER]["clean"] == fooled["scored"][OTHER]["clean"]
