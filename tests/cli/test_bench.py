"""`counterfoil bench` times what a run would do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from counterfoil import benchmark
from counterfoil import spec as specs
from counterfoil.benchmark import enough
from counterfoil.cli.app import app
from counterfoil.cli.bench import lab, lines
from counterfoil.engine import CPU_TILE
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
    assert found["slots"] == 32 and "fewer than its 32 slots, so some were idle" in done.output
    by_name = {share["name"]: share for share in found["shares"]}
    assert by_name["ask the oracle"]["times"] == pytest.approx(
        by_name["a guided step: render, ask the model, gradient"]["times"] + by_name["ask the model without a gradient"]["times"]
    )
    assert all(share["seconds"] > 0 for share in found["shares"])


def test_what_is_timed_fills_the_slots_of_a_gpu_several_times() -> None:
    class Card:
        device, slots = torch.device("cuda"), 128

    class Processor:
        device, slots = torch.device("cpu"), 32

    assert enough(Card()) == 384  # type: ignore[arg-type]
    assert enough(Processor()) == 32  # type: ignore[arg-type]


def test_without_a_number_as_many_images_are_timed_as_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "enough", lambda engine: 2 * engine.tile)
    found = benchmark.measured(specs.parse(values(f"tensors:{arrays(tmp_path / 'data.npz', 20)}")))
    assert found.images == 2 * CPU_TILE and found.slots == 32
    assert "16 timed" in lines(found, 1000)[0] and "fewer than its 32 slots" in lines(found, 1000)[1]
    full = replace(found, images=96)
    assert not any("slots" in line for line in lines(full, 1000))


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
