"""Loggers: what a tracker is told is what the run's results say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import UsageError
from counterfoil.report.trackers import log, read_run
from counterfoil.store import Run
from tests.report.made import Plan, build, replace_results


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(tmp_path_factory.mktemp("runs") / "one")


def test_scalars_curves_and_parameters(run: Run) -> None:
    told = read_run(run)
    assert run.results is not None
    for name in ("SA", "PA", "FMR"):
        found = run.results[name]
        assert (told.scalars[name], told.scalars[f"{name}/low"]) == (found["value"], found["low"])
    assert told.scalars["audit/FMR_kept"] == run.results["audit"]["FMR_kept"]["value"]
    for each in run.results["curve"]:
        assert told.curves["accuracy/guided", each["step"]] == each["guided"]["value"]
    assert told.parameters["model.name"] == "python:m"
    assert told.parameters["search.step"] == "0.01"
    assert not [name for name in told.scalars if "ant" in name.split("/")]


def test_tensorboard_reads_back_what_was_logged(run: Run, tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here")
    found = reading.EventAccumulator(log(run, "tensorboard", str(tmp_path)), size_guidance={reading.TENSORS: 0}).Reload()
    scalars = {
        (tag, event.step): event.tensor_proto.float_val[0] for tag in found.Tags()["tensors"] for event in found.Tensors(tag)
    }
    told = read_run(run)
    for name, value in told.scalars.items():
        assert scalars[name, 0] == pytest.approx(value), name
    for curve_point, value in told.curves.items():
        assert scalars[curve_point] == pytest.approx(value)


def test_mlflow_is_told_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {"steps": []}

    class Running:
        info = SimpleNamespace(run_id="abc")

        def __enter__(self) -> Running:
            return self

        def __exit__(self, *exception: object) -> None:
            told["ended"] = True

    fake = SimpleNamespace(
        set_tracking_uri=lambda uri: told.update(uri=uri),
        start_run=lambda run_name: told.update(name=run_name) or Running(),
        log_params=lambda values: told.update(parameters=values),
        log_metrics=lambda values: told.update(scalars=values),
        log_metric=lambda name, value, step: told["steps"].append((name, step, value)),
        log_artifact=lambda path: told.update(artifact=path),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)  # type: ignore[arg-type]
    assert log(run, "mlflow", "http://127.0.0.1:5000") == "MLflow run abc"
    expected = read_run(run)
    assert (told["uri"], told["name"], told["ended"]) == ("http://127.0.0.1:5000", "one", True)
    assert (told["parameters"], told["scalars"]) == (expected.parameters, expected.scalars)
    assert len(told["steps"]) == len(expected.curves)
    assert Path(told["artifact"]).name == "results.json"


def test_wandb_is_told_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: dict[int, dict[str, float]] = {}
    told: dict[str, Any] = {}

    class Running:
        name = "one"
        summary: dict[str, float] = {}  # noqa: RUF012

        def log(self, values: dict[str, float], step: int) -> None:
            steps[step] = values

        def finish(self) -> None:
            told["ended"] = True

    fake = SimpleNamespace(init=lambda **given: told.update(given) or Running())
    monkeypatch.setitem(sys.modules, "wandb", fake)  # type: ignore[arg-type]
    log(run, "wandb")
    expected = read_run(run)
    assert (told["project"], told["name"], told["ended"]) == ("counterfoil", "one", True)
    assert Running.summary == expected.scalars
    assert [steps[step]["accuracy/guided"] for step in sorted(steps)] == [
        value for (name, _), value in expected.curves.items() if name == "accuracy/guided"
    ]


def test_what_is_missing_is_told_in_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"pip install 'counterfoil\[wandb\]'"):
        log(run, "wandb")
    with pytest.raises(UsageError, match="no logger named 'tensorbord'; there are tensorboard"):
        log(run, "tensorbord")
    with pytest.raises(UsageError, match="not finished"):
        log(build(tmp_path / "half", Plan(finish=False, images=3)), "tensorboard")


def test_names_that_trackers_refuse_are_changed(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=2))
    replace_results(run, factors={"fond d'écran <b>": {"drop": {"value": 1.0, "low": 0.0, "high": 2.0, "n": 3}}})
    assert read_run(run).scalars["factors/fond d__cran _b_/drop"] == 1.0


def test_the_command(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="no tensorboard here")
    result = CliRunner().invoke(app, ["report", str(run.path), "--to", "tensorboard", "--where", str(tmp_path / "logs")])
    assert (result.exit_code, result.output) == (0, f"{run.path}: logged to {tmp_path / 'logs' / 'one'}\n")
