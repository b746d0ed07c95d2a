"""Images in zips: the same content as in files of their own, whatever happens on the way."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Trial, Verdict
from counterfoil.report.export import export
from counterfoil.report.images import ReportImages
from counterfoil.store.stages import Blobs, image_of
from counterfoil.web.runs import image_file

from . import made
from .faults import Killed, mortal, truncate
from .made import CLASSES, PROVENANCE, SPEC, content


def write(path: Path, images: int, *, packed: bool = True, **options: Any) -> list[str]:
    return made.write(path, range(images), finish=True, packed=packed, **options)


def test_records_and_images_are_those_of_a_run_with_files(tmp_path: Path) -> None:
    write(tmp_path / "zips", 23)
    write(tmp_path / "files", 23, packed=False)
    zips, files = (store.open_run(tmp_path / name) for name in ("zips", "files"))
    assert content(zips) == content(files)
    assert not list((tmp_path / "zips").rglob("*.png"))
    (first, *_), (loose, *_) = zips.chunks(), files.chunks()
    assert first.zip and not first.files and loose.files and not loose.zip


def test_one_run_may_hold_both(tmp_path: Path) -> None:
    write(tmp_path / "run", 9, packed=False)
    write(tmp_path / "run", 23)
    write(tmp_path / "files", 23, packed=False)
    assert content(store.open_run(tmp_path / "run")) == content(store.open_run(tmp_path / "files"))


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_damaged_zip_is_noticed_and_its_images_redone(tmp_path: Path, damage) -> None:
    write(tmp_path / "run", 13)
    before = content(store.open_run(tmp_path / "run"))
    damage(tmp_path / "run" / "images" / "000001.zip")
    notes = write(tmp_path / "run", 13)
    assert len(notes) == 1 and "images/000001.zip" in notes[0]
    assert content(store.open_run(tmp_path / "run")) == before


def test_any_tool_opens_a_zip(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run = store.open_run(tmp_path)
    known = {run.picture(trial).name: run.picture(trial).read_bytes() for trial in run.trials if trial.image}
    found = {}
    for path in (tmp_path / "images").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            found |= {name: archive.read(name) for name in archive.namelist()}
    assert found == known and len(known) > 4


def test_an_image_that_is_in_no_zip_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run = store.open_run(tmp_path)
    missing = run.picture(Trial("a", "guided", 0, 0, "budget", 0, 0, image=f"images/00/{'0' * 64}.png"))
    assert not missing.is_file() and missing.name == f"{'0' * 64}.png"
    with pytest.raises(FileNotFoundError, match="missing"):
        missing.read_bytes()
    with pytest.raises(BadRun, match="outside the run"):
        store.Images(tmp_path).at("../secret.png")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a killed process closes no file
def test_killed_before_each_single_change_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with monkeypatch.context() as patch:
        changes = mortal(patch, after=10**9)
        write(tmp_path / "whole", 3, chunk_images=2)
    whole = content(store.open_run(tmp_path / "whole"))
    for after in range(changes[0]):
        path = tmp_path / str(after)
        with monkeypatch.context() as patch:
            mortal(patch, after=after)
            with contextlib.suppress(Killed):
                write(path, 3, chunk_images=2)
        assert write(path, 3, chunk_images=2) == []  # being killed is not damage
        assert content(store.open_run(path)) == whole
        assert not list(path.rglob("*.tmp"))


def test_an_altered_index_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 5)
    for pack in (tmp_path / "images").glob("*.zip"):
        pack.write_bytes(pack.read_bytes().replace(b"PK\5\6", b"PK\5\7"))
    run = store.open_run(tmp_path)
    trial = next(trial for trial in run.trials if trial.image)
    assert not run.picture(trial).is_file()


def test_report_review_and_export_read_zips(tmp_path: Path) -> None:
    png = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 90)).save(png, "PNG")
    with store.write(tmp_path / "run", SPEC, CLASSES, PROVENANCE, packed=True) as writer:
        name = store.image_name(png.getvalue())
        trial = Trial("a", "guided", 1, 1, "budget", 1, 2, clean=name, image=name)
        writer.add([trial], [], [Verdict("a#guided", "made", "clip:o", True, 0.9, 1)], [png.getvalue()])
        writer.finish({})
    run = store.open_run(tmp_path / "run")
    album = ReportImages(tmp_path / "report")
    assert album.keep(run.path, name) is not None and not album.missing
    assert image_file(run.path, name).read_bytes() == png.getvalue()
    with pytest.raises(BadRun, match="missing"):
        image_file(run.path, f"images/00/{'0' * 64}.png")
    told = export(run, tmp_path / "set", licence="MIT")
    assert told.size == 1
    assert [file.read_bytes() for file in (tmp_path / "set").rglob("*.png")] == [png.getvalue()]


def test_images_of_stages_move_into_the_zip_of_their_trials(tmp_path: Path) -> None:
    blobs, name = Blobs(tmp_path), ""
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE, packed=True) as writer:
        name = blobs.put(b"an image of a stage", ".png")
        assert len(list(tmp_path.rglob("*.png"))) == 1
        writer.add([Trial("a", "edited", 1, 1, "made", 0, 0, image=image_of(name))])
    assert not list(tmp_path.rglob("*.png"))
    run = store.open_run(tmp_path)
    assert run.picture(next(iter(run.trials))).read_bytes() == blobs.read(name) == b"an image of a stage"
    assert name in blobs and blobs.put(b"an image of a stage", ".png") == name
    assert not list(tmp_path.rglob("*.png"))
