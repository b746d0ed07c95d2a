"""Benchmarks leave files behind that a page can be made of, and plans are computed from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import results, scale


def test_a_result_names_commit_and_code_and_is_older_once_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "step.py").write_text("1")
    results.keep("speed", [{"s": 1.25}], command="python -m bench.speed", about="One.", covers=["engine"], folder=tmp_path)
    found = results.read("speed", folder=tmp_path) or {}
    assert {"about", "command", "date", "commit", "covers", "code", "hardware", "versions", "rows"} <= found.keys()
    assert found["code"] == results.code(["engine"])
    (tmp_path / "engine" / "step.py").write_text("2")
    assert found["code"] != results.code(["engine"])


def test_a_command_names_no_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench/x.py", "--out", "/data/run", "--rows", "one, two", "--small"])
    assert results.command("bench.x") == "python -m bench.x --out FOLDER --rows 'one, two' --small"


def result_file(rows: list[dict[str, Any]], **hardware: Any) -> dict[str, Any]:
    return {"hardware": hardware, "rows": rows}


SIMULATED = {
    "scale": result_file(
        [
            {"what": "images", "value": 1000},
            {"what": "finished images per second through the store", "value": 5120},
            {"what": "MiB of the driver after a quarter", "value": 100},
            {"what": "MiB of the driver at the end", "value": 106},
            {"what": "seconds to list what is left, opening included", "value": 0.02},
        ]
    ),
    "scale_pictures": result_file([{"what": "bytes on the disk an image", "value": 400_000}]),
}


def test_a_plan_follows_from_seconds_and_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "read", lambda name: None)
    rows, about = scale.plan(0.072, 2.5)
    first = rows[0]
    assert (first["images"], first["GPUs"], first["time"], first["price"]) == (50_000, 1, "60.0 minutes", 2)
    assert {row["GPUs"] for row in rows} == {1, 8, 256} and "0.072 seconds per image" in about
    assert [row["price"] for row in rows[3:6]] == [round(14_197_122 * 0.072 / 3600 * 2.5)] * 3
    assert {row["protocol"] for row in rows} == {"FMR"}
    with pytest.raises(SystemExit, match="no measured seconds"):
        scale.plan(None, 2.5)


def test_a_plan_takes_the_best_row_of_the_engine_until_a_whole_run_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = [
        {"what": "loop", "seconds_per_image": 0.01},
        {"what": "engine a", "seconds_per_image": 0.2},
        {"what": "engine b", "seconds_per_image": 0.1, "warm_up_seconds": 60.0},
    ]
    found = {**SIMULATED, "fmr_speed": result_file(engine, gpu=["H200"])}
    monkeypatch.setattr(scale, "read", found.get)
    rows, about = scale.plan(None, 1.0)
    assert about.startswith("FMR: 0.1 seconds per image and GPU, 60 to warm up (fmr_speed, the engine alone, neither control arm")
    assert rows[2]["images/s"] == 2560 and rows[2]["of the driver's rate, %"] == 50.0 and rows[2]["MB/s to store"] == 1024.0
    whole = [
        {"what": "whole run", "control": control, "seconds per image": 0.1 + (control == "path")} for control in ("none", "path")
    ]
    found["fmr_whole"] = result_file(whole, gpu=["H200"])
    assert scale.plan(None, 1.0)[1].startswith(
        "FMR: 1.1 seconds per image and GPU, 60 to warm up (fmr_whole, control arm and store"
    )
    found["fmr_whole"] = result_file(whole)  # a rehearsal on a CPU says nothing
    assert "0.1 seconds" in scale.plan(None, 1.0)[1]


def test_edits_and_paintings_are_planned_from_their_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = [
        {"what": "editor: one at a time", "seconds_per_image": 100.0},
        {"what": "editor: ours", "seconds_per_image": 8.0},
        {"what": "painter: ours", "seconds_per_image": 0.25},
        {"what": "painter: ours, compiled", "seconds_per_image": 0.2},
    ]
    monkeypatch.setattr(scale, "read", {"diffusion_speed": result_file(speeds, gpu=["H200"])}.get)
    rows, _ = scale.plan(0.1, None)
    lance = next(row for row in rows if row["protocol"].startswith("LANCE"))
    painted = next(row for row in rows if row["protocol"].startswith("ImageNet-D"))
    assert lance["time"] == "4.6 days" and lance["images/s"] == 0.125
    assert painted["images"] == 61_811 and painted["time"] == "3.4 hours"


def test_the_room_of_a_run_grows_with_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "read", SIMULATED.get)
    rows = {row["data"]: row for row in scale.room()[0]}
    few, many = rows["ImageNet-1k validation"], rows["LAION-5B"]
    assert (few["disk, TB"], many["disk, TB"]) == (0.02, 2340.0)
    assert (few["parts"], many["parts"]) == (782, 1_428_223)
    assert many["driver memory, GB"] == pytest.approx(5_850_000_000 * 6 * 2**20 / 750 / 1e9, rel=0.01)
    assert few["resume scan"] == "1.0 seconds" and many["resume scan"] == "32.5 hours"
    monkeypatch.setattr(scale, "read", lambda name: None)
    with pytest.raises(SystemExit, match=r"run bench\.scale with --keep scale_pictures"):
        scale.room()


def test_rows_with_something_wrong_are_kept_and_end_the_process(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(results, "keep", lambda name, rows, **about: (tmp_path / name).write_text(str(len(rows))))
    found = [({"way": "first"}, ""), ({"way": "again"}, "again: not the same"), ({"way": "ray"}, "")]
    with pytest.raises(SystemExit, match="again: not the same"):
        results.print_checked(found, "some", command="python -m bench.some", about="Ways.")
    assert capsys.readouterr().out.splitlines() == ["way first", "way again", "way ray"]
    assert (tmp_path / "some").read_text() == "3"
    results.print_checked(found[:1], None, command="python -m bench.some", about="Ways.")
