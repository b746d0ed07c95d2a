"""Measuring: on which garments, which models, and what is left behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.training import measure as command
from lab.training import measurements as benches
from lab.training.measure import COUNTS, MEASURES, SEEDS, Bench, Record, measure
from lab.training.measurements import withstood

from counterfoil.core.errors import BadData, CounterfoilError
from counterfoil.parts.weights import file_sha256
from counterfoil_lab.checker import lost
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import Garments, shipped


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder of models with one in it, `diverse`, to write next to."""
    (tmp_path / "diverse").mkdir()
    for file in ("config.json", "model.safetensors"):
        (tmp_path / "diverse" / file).write_bytes((WEIGHTS / "diverse" / file).read_bytes())
    return tmp_path


def test_a_model_is_looked_for_in_the_folder_first_and_its_judges_in_the_package(tmp_path: Path) -> None:
    (tmp_path / "diverse").mkdir()
    bench = Bench(weights=tmp_path)
    assert bench.folder("diverse") == tmp_path / "diverse"
    assert bench.folder("diffusion", "vae") == WEIGHTS / "diffusion" / "vae"


def test_a_model_that_is_not_there_is_not_replaced_by_the_one_that_ships(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no model in a folder diverse"):
        measure(Bench(weights=tmp_path), "diverse")


def test_nothing_is_written_unless_it_is_to_be_kept(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(copied.rglob("*"))
    command.main(["diverse", "--weights", str(copied), "--count", "4"])
    assert sorted(copied.rglob("*")) == before
    assert "accuracy, full" in capsys.readouterr().out
    command.main(["diverse", "--weights", str(copied), "--count", "4", "--keep"])
    record = json.loads((copied / "diverse" / "measured.json").read_text(encoding="utf-8"))
    assert (record["split"], record["seed"], record["count"], record["device"]) == ("report", SEEDS["report"], 4, "cpu")
    assert record["weights"] == {"diverse/model.safetensors": file_sha256(copied / "diverse" / "model.safetensors")}
    assert record["machine"]
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert [reading["n"] for reading in record["readings"]] == [4]


def test_a_record_names_the_model_and_its_judges() -> None:
    record = measure(Bench(count=2), "vqgan")
    assert {path.split("/")[0] for path in record.weights} == {"vqgan", "diverse", "attributes"}
    losses = {reading.name: reading.at_most for reading in record.readings if reading.unit == "points"}
    assert losses["material lost in reconstruction"] == losses["weather lost in reconstruction"] == 5
    assert len(losses) == 9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["narow"], "did you mean 'narrow'"),
        (["narrow", "--count", "1"], "at least 2, got 1"),
        (["narrow", "--split", "tune", "--keep"], "choices are made by tune"),
        (["narrow", "--split", "whole", "--data", "nowhere"], "nowhere: no t10k-images-idx3-ubyte"),
        (["rewriter", "--split", "whole"], "sees no garment"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(CounterfoilError, match=problem):
        command.main(arguments)


def test_no_two_splits_show_the_same_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("fresh", "whole"):
        monkeypatch.setattr(benches, split, lambda folder: shipped("report"))
    drawn = [Bench(split=split, count=50).scenes()[0] for split in SEEDS]
    assert len(torch.cat([scenes.seed for scenes in drawn]).unique()) == 50 * len(SEEDS)


def test_on_the_whole_split_no_target_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "whole", lambda folder: shipped("report"))
    bench = Bench(count=2)
    assert measure(bench, "narrow").readings[0].at_least == 95
    assert all(reading.holds is None for reading in measure(replace(bench, split="whole"), "narrow").readings)


def test_a_command_has_what_differs_from_the_defaults() -> None:
    record = Record(split="report", seed=1, count=4000, device="cpu", machine="")
    assert command.command("clip", record) == "python -m lab.training.measure clip"
    other = replace(record, split="fresh", count=50, device="cuda")
    assert command.command("clip", other) == "python -m lab.training.measure clip --split fresh --count 50 --device cuda"


def test_every_model_has_a_count() -> None:
    assert set(COUNTS) == set(MEASURES)


def test_an_attack_takes_the_plain_model_and_not_the_hardened_one() -> None:
    bench = Bench(count=40)
    scenes, images = bench.scenes("narrow")
    plain, hardened = (withstood(bench, name, images, scenes.factors["garment"]).sum() for name in ("narrow", "adversarial"))
    assert plain < 10
    assert hardened > 30


def test_a_loss_is_of_the_same_rows_and_its_interval_has_a_width() -> None:
    before = torch.tensor([True] * 90 + [False] * 10)
    after = torch.tensor([True] * 84 + [False] * 6 + [True] * 2 + [False] * 8)
    reading = lost("material", before, after, at_most=5)
    assert reading.value == pytest.approx(4)
    # By hand: 6 fell, 2 rose; with half a row in each cell 6.5 and 2.5 of 102.
    half = 1.959964 * (9 / 102**2 - (4 / 102) ** 2 / 102) ** 0.5
    assert (reading.low, reading.high) == (pytest.approx(100 * (4 / 102 - half)), pytest.approx(100 * (4 / 102 + half)))
    same = lost("colour", before, before)
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)
    assert same.high > 1


def test_garments_of_a_split_are_taken_from_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path | None] = []

    def fresh(folder: Path | None) -> Garments:
        asked.append(folder)
        return shipped("tune")

    monkeypatch.setattr(benches, "fresh", fresh)
    Bench(split="fresh", data=tmp_path).garments()
    Bench(split="fresh").garments()
    assert asked == [tmp_path, None]
