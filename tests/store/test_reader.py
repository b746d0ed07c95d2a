"""Reading a run: its tables, images and results, and nothing outside it; what is lost or damaged is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Trial
from counterfoil.store import Run
from counterfoil.store.chunks import read_chunk
from counterfoil.store.later import append_to

from .made import CLASSES, PROVENANCE, SPEC, content, fill, write


def finished_run(path: Path) -> Run:
    write(path, range(9), finish=True)
    return store.open_run(path)


def test_reading_what_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, why in ((".", "no run.json"), ("nowhere", "no such folder"), ("notes.txt", "it is a file, and a run is a folder")):
        with pytest.raises(BadRun, match=rf"not a run directory \({why}\); give the --out of a run$"):
            store.open_run(tmp_path / path)


def test_the_folder_around_runs_is_answered_with_their_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, range(1))
    with pytest.raises(BadRun, match=f"here are {tmp_path / 'one'}, {tmp_path / 'two'}$"):
        store.open_run(tmp_path)
    with pytest.raises(BadRun, match=f"no such folder.*; here are {tmp_path / 'one'}, {tmp_path / 'two'}$"):
        store.open_run(tmp_path / "three")
    with pytest.raises(BadRun, match=f"a run is a folder.*; here are {tmp_path / 'one'}$"):
        store.open_run(tmp_path / "one" / "run.json")


def test_tables_stream_as_arrow(tmp_path: Path) -> None:
    write(tmp_path, range(7))
    run = store.open_run(tmp_path)
    table = run.table("trials", columns=["steps", "image_id"]).read_all()
    assert table.column_names == ["steps", "image_id"]
    assert sum(table["steps"].to_pylist()) == sum(trial.steps for trial in run.trials)
    assert run.table("verdicts").read_all().num_rows == len(list(run.verdicts()))


def test_an_image_outside_the_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(1))
    for image in ("/etc/passwd", "images/../../secret.png", "run.json"):
        with pytest.raises(BadRun, match="outside the run"):
            store.open_run(tmp_path).picture(Trial("a", "guided", 0, 0, "budget", 0, 0, image=image))


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_run_that_has_lost_a_chunk_is_refused_and_its_command_repairs_it(tmp_path: Path, number: int) -> None:
    run = finished_run(tmp_path)
    run.append(predictions=[Prediction("a#guided", "made", "later", 0, True, 0.5, 0.5)])
    before = content(run)
    (tmp_path / "chunks" / f"{number:06d}.json").unlink()
    with pytest.raises(BadRun, match=rf"files are lost \(chunks/00000{number}.json\); repeat the run's command"):
        store.open_run(tmp_path)
    with pytest.raises(BadRun, match="files are lost"):
        list(run.trials)  # also one that was open
    finished_run(tmp_path)
    after = content(store.open_run(tmp_path))
    assert after["trials"] == before["trials"] and after["images"] == before["images"]


def test_a_finished_run_without_its_list_of_chunks_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path)
    (tmp_path / "chunks.json").unlink()
    with pytest.raises(BadRun, match=r"files are lost \(chunks.json\)"):
        store.open_run(tmp_path)
    assert finished_run(tmp_path).counts["images"] == 9


def _nest(path: Path) -> None:
    path.write_text("[" * 100_000)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [_nest, _fifo, lambda path: path.write_text("[1, 2]")])
@pytest.mark.parametrize("name", ["run.json", "results.json", "chunks/000001.json", "chunks.json"])
def test_hostile_files_of_a_run_are_one_line(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    finished_run(tmp_path)
    damage(tmp_path / name)
    with pytest.raises(BadRun, match=name) as caught:
        print(store.open_run(tmp_path).results)
    assert "\n" not in str(caught.value)


def test_a_table_with_other_columns_is_damaged(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    path = tmp_path / "predictions" / "000001.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.rename_columns(["Picture" if name == "picture" else name for name in rows.column_names]), path)
    with pytest.raises(BadRun, match=r"000001\.parquet: damaged or missing"):
        list(run.predictions("python:m"))
    with pytest.raises(BadRun, match=r"000001\.parquet: damaged or missing"):
        run.table("predictions", columns=["picture"]).read_all()


@pytest.mark.parametrize("damage", [b"", b"another image", bytes(200)], ids=["empty", "another", "zeros"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_image_that_was_altered_is_never_read(tmp_path: Path, packed: bool, damage: bytes) -> None:
    write(tmp_path, range(5), packed=packed)
    run = store.open_run(tmp_path)
    trial = next(trial for trial in run.trials if trial.image)
    image = run.picture(trial)
    content = image.read_bytes()
    if packed:
        for path in (tmp_path / "images").glob("*.zip"):
            path.write_bytes(path.read_bytes().replace(content, damage[: len(content)].ljust(len(content), b"x")))
    else:
        image.path.write_bytes(damage)
    with pytest.raises(OSError, match="damaged"):
        store.open_run(tmp_path).picture(trial).read_bytes()


def test_a_link_in_a_circle_is_a_missing_image(tmp_path: Path) -> None:
    write(tmp_path, range(1))
    run = store.open_run(tmp_path)
    image = run.picture(next(trial for trial in run.trials if trial.image))
    image.path.unlink()
    image.path.symlink_to(image.path)
    assert not image.is_file()
    with pytest.raises(OSError):
        image.read_bytes()


def test_manifests_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = finished_run(tmp_path), []
    monkeypatch.setattr("counterfoil.store.run.read_chunk", lambda root, number: read.append(number) or read_chunk(root, number))
    run.append(predictions=[Prediction("a#guided", "made", "later", 0, True, 0.5, 0.5)])
    for _ in range(3):
        assert len(list(run.trials)) and list(run.predictions("later"))
    assert read == [3]


def test_later_verdicts_of_the_runs_own_oracle_do_not_unfinish_it(tmp_path: Path) -> None:
    """A kill while they are written leaves the results of before; the next process to add rows computes them again."""
    run = finished_run(tmp_path)
    with append_to(tmp_path, chunk_rows=1, own=["clip:o"]) as rows:
        rows.add(verdicts=[next(run.verdicts("clip:o"))])  # and the process that would compute the results is killed
    assert run.results == {"images": 9, "accepted": 8}
    with append_to(tmp_path, chunk_rows=9, own=["clip:o"]) as rows:
        rows.add(predictions=[Prediction("a#guided", "made", "later", 0, True, 0.5, 0.5)])
        assert rows.outdated
        rows.commit()
        rows.close({"verdicts": 1})
        assert not rows.outdated
    assert run.results == {"verdicts": 1}
    with append_to(tmp_path, chunk_rows=9, own=["clip:o"]) as rows:
        assert not rows.outdated


def test_results_are_canonical_and_do_not_outlive_what_they_speak_of(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(3))
        writer.finish({"b": 1 / 3, "a": {"value": None, "note": "é", "n": 3}, "c": -0.0})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert text == '{\n  "a": {\n    "n": 3,\n    "note": "é",\n    "value": null\n  },\n  "b": 0.333333,\n  "c": 0.0\n}\n'
    assert store.open_run(tmp_path).results == json.loads(text)
    write(tmp_path, range(3))
    assert store.open_run(tmp_path).results is not None  # nothing was added
    write(tmp_path, range(4))
    assert store.open_run(tmp_path).results is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_results_that_json_cannot_hold_are_refused(tmp_path: Path, value: object) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(1))
        with pytest.raises(ValueError, match=r"PA\.value"):
            writer.finish({"PA": {"value": value}})
    assert store.open_run(tmp_path).results is None


def test_results_can_be_read_without_torch() -> None:
    code = "import sys, counterfoil.store, counterfoil.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
