"""Reading a run: its tables as streams, its pictures and nothing outside it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Trial
from counterfoil.store import schema

from .made import write


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
    table = run.table("trials", columns=["image_id", "steps"]).read_all()
    assert table.column_names == ["image_id", "steps"]
    assert sum(table["steps"].to_pylist()) == sum(trial.steps for trial in run.trials)
    assert run.table("verdicts").read_all().num_rows == len(list(run.verdicts()))


def test_what_an_older_program_wrote_has_the_columns_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that were added since have their defaults, beside rows that came later and have them all."""
    newer = {"predictions": ("rank", "said"), "trials": ("path_said",)}
    with monkeypatch.context() as older:
        for name, columns in newer.items():
            kept = [field for field in schema.SCHEMAS[name] if field.name not in columns]
            older.setitem(schema.SCHEMAS, name, pa.schema(kept))
        write(tmp_path, range(3))
    run = store.open_run(tmp_path)
    assert not {"rank", "said"} & set(pq.read_schema(next((tmp_path / "predictions").iterdir())).names)
    rows = len(list(run.predictions()))
    run.append(predictions=[Prediction("a#guided", "made", "timm:x", -1, False, 0.5, 0.1, 3, "oak")])
    found = run.table("predictions").read_all()
    assert found["said"].to_pylist() == [*[""] * rows, "oak"] and found["rank"].to_pylist() == [*[0] * rows, 3]
    assert run.table("predictions", columns=["said"]).read_all().num_rows == rows + 1
    assert {trial.path_said for trial in run.trials} == {()}
    assert run.table("trials").read_all()["path_said"].to_pylist() == [[]] * len(list(run.trials))


def test_a_picture_outside_the_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(1))
    for image in ("/etc/passwd", "images/../../secret.png"):
        with pytest.raises(BadRun, match="outside the run"):
            store.open_run(tmp_path).picture(Trial("a", "guided", 0, 0, "budget", 0, 0, image=image))
