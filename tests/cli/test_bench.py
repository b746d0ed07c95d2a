"""`counterfoil bench` times what a run would do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.cli.bench import lab
from tests.worlds import arrays, values


def test_a_climb_is_taken_apart_and_a_run_predicted(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(values(f"tensors:{arrays(tmp_path / 'data.npz', 12)}")))
    done = CliRunner().invoke(
        app, ["bench", str(spec), "--images", "12", "--predict", "1000", "--json", str(tmp_path / "out.json")]
    )
    assert done.exit_code == 0, done.output
    assert "images a second (12 timed); 1,000 images take" in done.output
    (found,) = json.loads((tmp_path / "out.json").read_text())
    assert found["images"] == 12 and found["seconds"] > 0
    by_name = {share["name"]: share for share in found["shares"]}
    assert by_name["ask the oracle"]["times"] == pytest.approx(
        by_name["a guided step: render, ask the model, gradient"]["times"] + by_name["ask the model without a gradient"]["times"]
    )
    assert all(share["seconds"] > 0 for share in found["shares"])


@pytest.mark.xdist_group("lab")
def test_a_staged_protocol_is_timed_stage_by_stage(tmp_path: Path) -> None:
    values = {**lab("imagenet-d"), "painter": "lab:scenes", "surrogates": ["lab:narrow"], "models": ["lab:diverse"]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values))
    out = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["bench", str(tmp_path / "spec.yaml"), "--images", "4", "--json", str(out)])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(out.read_text())
    times = {share["name"]: share["times"] for share in found["shares"]}
    assert times["paintings"] == 1 and times["objects"] == 1
    assert found["seconds"] == pytest.approx(sum(share["seconds"] for share in found["shares"]))
