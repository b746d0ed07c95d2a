"""`counterfoil doctor --time` times what a run would do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.cli.doctor import demo, lines
from counterfoil.core.errors import BadSpec, UsageError
from counterfoil.doctor import timing
from counterfoil.doctor.timing import TimeShare, Timing, enough
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.protocols.fmr import FmrSpec
from tests.worlds import arrays, values


def test_a_climb_is_taken_apart_and_a_run_predicted(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(values(f"tensors:{arrays(tmp_path / 'data.npz', 12)}")))
    done = CliRunner().invoke(
        app, ["doctor", str(spec), "--time", "--images", "12", "--predict", "1000", "--json", str(tmp_path / "out.json")]
    )
    assert done.exit_code == 0, done.output
    assert "images per second (12 timed); a run of 1,000 images takes" in done.output
    assert "counted with it: loading" in done.output and "storing and statistics" in done.output
    (found,) = json.loads((tmp_path / "out.json").read_text())
    assert found["images"] == 12 and found["seconds"] > 0
    assert set(found["once"]) == {"loading", "sizing and compiling", "starting, storing and statistics"}
    assert min(found["once"].values()) >= 0
    assert found["slots"] == 32 and "fewer than its 32 slots, so some were idle" in done.output
    by_name = {share["name"]: share for share in found["shares"]}
    assert by_name["ask the oracle"]["times"] == pytest.approx(
        by_name["a guided step: render, ask the model, gradient"]["times"] + by_name["ask the model without a gradient"]["times"]
    )
    assert all(share["seconds"] > 0 for share in found["shares"])


def test_the_time_of_a_run_over_all_the_data_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timing("fmr", 8, 1.0, [TimeShare("all", 1, 1.0)])
    monkeypatch.setattr(timing, "time_protocol", lambda spec, images: timed)
    data = f"tensors:{arrays(tmp_path / 'data.npz', 12)}"
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values(data, limit=10)))
    for words, said in (
        (["--data", data], "a run of 12 images takes"),
        ([str(tmp_path / "spec.yaml")], "a run of 10 images takes"),
    ):
        assert said in CliRunner().invoke(app, ["doctor", "--time", *words]).output
    assert "a run of 50,000 images takes" in CliRunner().invoke(app, ["doctor", "--time", "--protocol", "fmr"]).output
    assert "a run of 7 images takes" in CliRunner().invoke(app, ["doctor", "--time", "--data", data, "--predict", "7"]).output


def test_a_prediction_counts_everything_that_a_run_does() -> None:
    found = Timing("fmr", 8, 0.5, [TimeShare("all", 1, 0.5)], once={"loading": 3.0, "sizing": 2.0}, around=0.25)
    assert found.predict(100) == 3 + 2 + 75
    assert lines(found, 100)[:2] == [
        "fmr: 2 images per second (8 timed); a run of 100 images takes 80.0 seconds",
        "  counted with it: loading 3.0 seconds, sizing 2.0 seconds, 250.0 ms per image around it",
    ]


def test_a_slow_store_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = protocols.parse(values(f"tensors:{arrays(tmp_path / 'data.npz', 4)}"))
    monkeypatch.setattr(timing, "_run_whole", lambda spec, images, given: 1000.0 + 300.0 * images)
    found = timing.time_protocol(spec, 4)
    assert found.around == pytest.approx(300, abs=2) and found.predict(100) == pytest.approx(31_000, rel=0.01)


def test_a_search_by_random_steps_has_no_guided_ones_though_the_model_could_be_differentiated(tmp_path: Path) -> None:
    chosen = protocols.parse(
        {**values(f"tensors:{arrays(tmp_path / 'data.npz', 4)}"), "search": {"budget": 1, "guidance": "random"}}
    )
    times = {share.name: share.times for share in timing.time_protocol(chosen, 4).shares}
    assert times["a guided step: render, ask the model, gradient"] == 0
    assert times["ask the oracle"] == times["ask the model without a gradient"] > 1


def test_what_is_timed_fills_the_slots_of_a_gpu_several_times() -> None:
    class Card:
        device, slots = torch.device("cuda"), 128

    class Processor:
        device, slots = torch.device("cpu"), 32

    assert enough(Card()) == 384  # type: ignore[arg-type]
    assert enough(Processor()) == 32  # type: ignore[arg-type]


def test_without_a_number_as_many_images_are_timed_as_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "enough", lambda engine: 2 * engine.batch_size)
    found = timing.time_protocol(protocols.parse(values(f"tensors:{arrays(tmp_path / 'data.npz', 20)}")))
    assert found.images == 2 * CPU_BATCH and found.slots == 32
    assert "16 timed" in lines(found, 1000)[0] and "fewer than its 32 slots" in lines(found, 1000)[2]
    full = replace(found, images=96)
    assert not any("slots" in line for line in lines(full, 1000))


def write_spec(folder: Path, **changes: object) -> Path:
    """A specification's file over a few images."""
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(values(f"tensors:{arrays(folder / 'data.npz', 8)}", **changes)))
    return path


def test_the_section_that_says_where_to_work_is_taken_as_run_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def record_threads(spec: object, images: int | None) -> Timing:
        seen.append(torch.get_num_threads())
        return Timing("fmr", 8, 1.0, [TimeShare("all", 1, 1.0)])

    monkeypatch.setattr(timing, "time_protocol", record_threads)
    before = torch.get_num_threads()
    done = CliRunner().invoke(app, ["doctor", "--time", str(write_spec(tmp_path, execution={"threads": before + 1}))])
    assert done.exit_code == 0, done.output
    assert seen == [before + 1] and torch.get_num_threads() == before
    spread = CliRunner().invoke(app, ["doctor", "--time", str(write_spec(tmp_path, execution={"executor": "ray", "workers": 2}))])
    assert "timed in this process alone, not by the workers of ray" in spread.output
    wrong = CliRunner().invoke(app, ["doctor", "--time", str(write_spec(tmp_path, execution={"cores": 1}))])
    assert isinstance(wrong.exception, BadSpec) and "execution: keys are" in str(wrong.exception)


@pytest.mark.parametrize(
    ("words", "timed"),
    [
        ([], [("fmr", "lab:narrow"), ("imagenet-d", None), ("lance", "lab:background-shortcut")]),
        (["--model", "lab:vit"], [("fmr", "lab:vit")]),
        (["--model", "lab:vit", "--protocol", "lance"], [("lance", "lab:vit")]),
        (["spec.yaml", "--model", "lab:vit", "--data", "lab:wardrobe"], [("fmr", "lab:vit")]),
    ],
)
def test_parts_named_stand_in_for_those_of_the_file_or_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], timed: list[tuple[str, str | None]]
) -> None:
    seen: list[FmrSpec] = []

    def time_it(spec: FmrSpec, images: int | None) -> Timing:
        seen.append(spec)
        return Timing(spec.protocol, 8, 1.0, [TimeShare("all", 1, 1.0)])

    monkeypatch.setattr(timing, "time_protocol", time_it)
    write_spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["doctor", "--time", *words])
    assert done.exit_code == 0, done.output
    found = [(spec.protocol, model.name if (model := getattr(spec, "model", None)) else None) for spec in seen]
    assert found == timed
    assert "--data" not in words or seen[0].data.name == "lab:wardrobe"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "spec.yaml/x.json"], "spec.yaml/x.json: cannot be written (Not a directory)"),
        (["--json", "."], "is a folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(timing, "time_protocol", lambda *given: pytest.fail("timed"))
    write_spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["doctor", "--time", "spec.yaml", *words])
    assert isinstance(refused.exception, UsageError) and said in str(refused.exception)


@pytest.mark.xdist_group("lab")
def test_a_staged_protocol_is_timed_stage_by_stage(tmp_path: Path) -> None:
    values = {**demo("imagenet-d"), "painter": "lab:scenes", "surrogates": ["lab:narrow"], "models": ["lab:diverse"]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values))
    out = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["doctor", "--time", str(tmp_path / "spec.yaml"), "--images", "4", "--json", str(out)])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(out.read_text())
    times = {share["name"]: share["times"] for share in found["shares"]}
    assert times["paintings"] == 1 and times["objects"] == 1
    assert found["seconds"] == pytest.approx(sum(share["seconds"] for share in found["shares"]), abs=1e-4)  # rounded
