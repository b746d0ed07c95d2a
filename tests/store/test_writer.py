from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil import store
from counterfoil.errors import BadData, BadRun, BadSpec
from counterfoil.records import Prediction, Trial, Verdict

from .made import CLASSES, PROVENANCE, SPEC, content, expected, fill, image_id, records


def write(path: Path, numbers: range, **options) -> list[str]:
    with store.write(path, SPEC, CLASSES, PROVENANCE, **{"part_images": 4, **options}) as writer:
        fill(writer, numbers)
        return writer.notes


def write_and_fail(path: Path, numbers: range, error: BaseException) -> None:
    with store.write(path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, numbers)
        writer.keep(b"of an image that never came")
        raise error


def every_file(path: Path) -> set[str]:
    return {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "run", range(23))
    run = store.open_run(tmp_path / "run")
    found = content(run)
    wanted = expected(range(23))
    assert {name: found[name] for name in wanted} == wanted
    stored = {trial.trial_id: trial for trial in found["trials"]}
    for number in range(23):
        trials, _, _, pictures = records(number)
        for trial in trials:
            png = pictures.get(trial.trial_id)
            named = stored.pop(trial.trial_id)
            if png is not None:
                assert named.image_sha256 == hashlib.sha256(png).hexdigest()
                assert named.image_bytes == len(png)
            assert dataclasses.replace(named, image="", image_sha256="", image_bytes=0) == trial
    assert not stored
    assert run.counts == {"images": 23, "validated": sum(n % 11 != 10 and n % 5 != 4 for n in range(23)), "skipped": 2}


def test_parts_hold_the_number_of_images_asked_for(tmp_path: Path) -> None:
    write(tmp_path, range(10), part_images=4)
    assert [part.images for part in store.open_run(tmp_path).parts()] == [4, 4, 2]


def test_resuming_adds_only_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        assert writer.counts == {"images": 10, "validated": 8, "skipped": 0}
        assert image_id(9) in writer.done
        assert image_id(10) not in writer.done
        assert len(writer.done) == 10
        fill(writer, range(20))
        assert writer.counts["images"] == 20
        assert writer.notes == []
    run = store.open_run(tmp_path)
    assert {name: rows for name, rows in content(run).items() if name != "trials"} == expected(range(20))


def test_pictures_kept_one_by_one_belong_to_the_image_added_next(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        clean, made = writer.keep(b"clean"), writer.keep(b"made")
        writer.add([Trial("a", "guided", 0, 1, "budget", 1, 2, clean=clean, image=made)], [], [])
        assert writer.keep(b"clean") == clean  # equal pictures are kept once
        writer.add([Trial("b", "guided", 0, 1, "unvalidated", 0, 1)], [], [])
        with pytest.raises(ValueError, match="was not kept with this image"):
            writer.add([Trial("c", "guided", 0, 1, "budget", 1, 2, image=made)], [], [])
    run = store.open_run(tmp_path)
    first, second = run.trials
    assert run.picture(first).read_bytes() == b"made"
    assert run.picture(first, "clean").read_bytes() == b"clean"
    assert (first.image_bytes, second.image) == (4, "")
    with pytest.raises(BadRun, match="has no made picture"):
        run.picture(second)


def test_add_refuses_records_that_do_not_belong_together(tmp_path: Path) -> None:
    one, other = records(0), records(1)
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        with pytest.raises(ValueError, match="one image at a time"):
            writer.add([*one[0], *other[0]], [], [])
        with pytest.raises(ValueError, match="do not fit"):
            writer.add(one[0], other[1], [])
        with pytest.raises(ValueError, match="do not fit"):
            writer.add([one[0][0], one[0][0]], [], [])
        writer.add(*one)
        with pytest.raises(BadData, match="occurs twice"):
            writer.add(*one)


def test_an_exception_keeps_what_is_complete_and_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path, range(3), KeyboardInterrupt())
    run = store.open_run(tmp_path)
    assert len({trial.image_id for trial in run.trials}) == 3
    assert len([name for name in every_file(tmp_path) if name.startswith("images/")]) == len(expected(range(3))["pictures"])
    write(tmp_path, range(6))
    assert run.counts["images"] == 6  # an open run sees parts that come later


def test_an_exception_before_any_image_leaves_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "not" / "yet" / "there", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(RuntimeError, match="oracle"):
            write_and_fail(path, range(0), RuntimeError("oracle"))
    assert [each.name for each in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


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


def test_another_specification_is_refused_by_its_first_differing_keys(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    before = every_file(tmp_path)
    other = {**SPEC, "seed": 1, "search": {"budget": 50, "step": 0.01}}
    with pytest.raises(BadRun, match=r"seed 0, now 1; search.budget 2, now 50; choose another --out"):
        store.write(tmp_path, other, CLASSES, PROVENANCE).__enter__()
    with pytest.raises(BadRun, match="class 1 is 'bee', now 'wasp'"):
        store.write(tmp_path, SPEC, ("ant", "wasp", "cat"), PROVENANCE).__enter__()
    assert every_file(tmp_path) == before


def test_keys_that_change_no_number_may_differ(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    other = {**SPEC, "device": "cuda", "engine": {"slots": 1, "precision": "float32"}}
    with store.write(tmp_path, other, CLASSES, PROVENANCE) as writer:
        assert writer.counts["images"] == 2
    with pytest.raises(BadRun, match=r"engine\.precision"):
        store.write(tmp_path, {**SPEC, "engine": {"slots": 32, "precision": "bfloat16"}}, CLASSES, PROVENANCE).__enter__()
    with pytest.raises(BadRun, match="device"):
        store.write(tmp_path, other, CLASSES, PROVENANCE, free=()).__enter__()


def test_other_versions_are_noted_and_recorded_but_other_weights_refused(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    newer = {**PROVENANCE, "versions": {"numpy": "2.4"}}
    for _ in range(2):
        with store.write(tmp_path, SPEC, CLASSES, newer) as writer:
            assert writer.notes == ['resumed with versions.numpy "2.0", now "2.4"']
    run = store.open_run(tmp_path)
    assert (run.provenance, list(run.resumed)) == (PROVENANCE, [newer])
    for changed in ({"parts": {"model": {"weights": "w2"}}}, {"data": "d2"}):
        with pytest.raises(BadRun, match="now"):
            store.write(tmp_path, SPEC, CLASSES, {**PROVENANCE, **changed}).__enter__()


def test_a_specification_must_be_plain(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="data: object"):
        store.write(tmp_path / "run", {"data": object()}, CLASSES, PROVENANCE).__enter__()
    assert not (tmp_path / "run").exists()


def test_folders_that_are_not_runs_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(BadRun, match=r"not empty and not a run directory \(it has thesis.tex\)"):
        store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
    with pytest.raises(BadRun, match="is a file"):
        store.write(tmp_path / "thesis.tex", SPEC, CLASSES, PROVENANCE).__enter__()
    assert every_file(tmp_path) == {"thesis.tex"}


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"schema": 99}', "newer Counterfoil"), ("{", "damaged"), ('{"schema": 1}', "damaged"), ("[]", "damaged")],
)
def test_a_run_file_this_program_cannot_read(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, range(2))
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadRun, match=message):
        store.open_run(tmp_path)
    with pytest.raises(BadRun, match=message):
        store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
    assert store.parts.numbers(tmp_path) == [0]


def test_reading_what_is_not_a_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadRun, match="not a run directory"):
            store.open_run(path)


def test_another_model_and_oracle_can_be_added_later(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    run = store.open_run(tmp_path)
    predictions = [Prediction(trial.trial_id, "made", "timm:other", 0, False, 0.5, 0.2) for trial in run.trials if trial.image]
    verdicts = [Verdict(each.trial_id, "made", "people", None, 0.0, -1) for each in predictions]
    run.append(predictions=predictions, verdicts=verdicts)
    run.append()
    assert list(run.predictions("timm:other")) == predictions
    assert list(run.verdicts(oracle="people")) == verdicts
    assert {each.model for each in run.predictions()} == {"python:m", "timm:other"}
    assert len(list(run.predictions("python:m"))) == len(expected(range(5))["predictions"])
    assert run.counts["images"] == 5
    write(tmp_path, range(8))  # the run goes on beside them
    assert list(run.predictions("timm:other")) == predictions
    assert run.counts["images"] == 8


def test_rows_added_a_few_at_a_time_share_parts(tmp_path: Path) -> None:
    write(tmp_path, range(4))
    run = store.open_run(tmp_path)
    rows = [Prediction(f"{number}#guided", "made", "timm:other", 0, True, 0.5, 0.5) for number in range(25)]
    with run.appending(part_rows=10) as more:
        for start in range(0, 25, 5):
            more.add(predictions=rows[start : start + 5])
        with pytest.raises(BadRun, match="is writing here"):
            run.append(predictions=rows)
    assert list(run.predictions("timm:other")) == rows
    assert [part.tables["predictions"].rows for part in run.parts()][1:] == [10, 10, 5]


def test_rows_added_before_an_exception_are_kept_and_a_full_disk_leaves_none(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, range(4))
    run = store.open_run(tmp_path)
    row = Prediction(f"{image_id(0)}#guided", "made", "timm:other", 0, True, 0.5, 0.5)

    def fail() -> None:
        with run.appending() as more:
            more.add(predictions=[row])
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    assert list(run.predictions("timm:other")) == [row]
    before = every_file(tmp_path)
    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(getattr(os, call), errno.ENOSPC, after=1))
            with pytest.raises(BadRun, match="No space left"):
                run.append(predictions=[row], verdicts=[Verdict(row.trial_id, "made", "p", True, 1.0, 0)])
        assert every_file(tmp_path) == before


def test_tables_stream_as_arrow(tmp_path: Path) -> None:
    write(tmp_path, range(7))
    run = store.open_run(tmp_path)
    table = run.table("trials", columns=["image_id", "steps"]).read_all()
    assert table.column_names == ["image_id", "steps"]
    assert sum(table["steps"].to_pylist()) == sum(trial.steps for trial in run.trials)
    assert run.table("verdicts").read_all().num_rows == len(list(run.verdicts()))


def test_a_picture_outside_the_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(1))
    for image in ("/etc/passwd", "images/../../secret.png"):
        with pytest.raises(BadRun, match="outside the run"):
            store.open_run(tmp_path).picture(Trial("a", "guided", 0, 0, "budget", 0, 0, image=image))


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(2))
        with pytest.raises(BadRun, match=rf"process {os.getpid()} on .* is writing here"):
            store.write(tmp_path, SPEC, CLASSES, PROVENANCE).__enter__()
        writer.commit()
        run = store.open_run(tmp_path)  # readers are let in
        assert run.counts["images"] == 2
        with pytest.raises(BadRun, match="is writing here"):
            run.append(predictions=records(0)[1])
    run.append(predictions=records(0)[1])


FAULTS = [
    (errno.ENOSPC, "No space left on device", "free some space"),
    (errno.EROFS, "Read-only file system", "choose another --out"),
    (errno.EACCES, "Permission denied", "permissions"),
]


@pytest.mark.parametrize(("code", "said", "advice"), FAULTS)
@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "replace"])
def test_a_disk_that_fails_from_the_start_leaves_nothing(tmp_path, monkeypatch, call, code, said, advice) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, _failing(getattr(os, call), code, after=0))
        with pytest.raises(BadRun, match=rf"cannot be written \({said}\); .*{advice}"):
            write(tmp_path / "out" / "run", range(9))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "replace"])
def test_a_disk_that_fills_up_leaves_whole_parts_only(tmp_path, monkeypatch, call) -> None:
    """The fault strikes at the first call, at the second, and so on; what is left must always resume to the same end."""
    for after in range(2, 60, 8):
        path = tmp_path / f"{call}{after}"
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(getattr(os, call), errno.ENOSPC, after=after))
            try:
                write(path, range(9), part_images=2)
            except BadRun as error:
                message = str(error)
            else:
                message = ""
        assert "\n" not in message
        assert "No space left" in message or path.exists()
        if not path.exists():
            continue
        run = store.open_run(path)
        held = sorted({trial.image_id for trial in run.trials})
        assert held == sorted(image_id(number) for number in range(len(held)))
        names = every_file(path)
        owned = {name for part in run.parts() for name in part.pictures}
        assert {name for name in names if name.startswith("images/")} == owned
        assert not [name for name in names if name.endswith(".tmp")]
        write(path, range(9))
        assert {name: rows for name, rows in content(run).items() if name != "trials"} == expected(range(9))


real_open = os.open


def _failing(real, code: int, *, after: int):
    calls = 0

    def call(*arguments, **options):
        nonlocal calls
        creates = real is not real_open or arguments[1] & os.O_CREAT  # a full disk can still be read
        calls += creates
        if creates and calls > after:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return call


def test_results_can_be_read_without_torch() -> None:
    code = "import sys, counterfoil.store, counterfoil.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
