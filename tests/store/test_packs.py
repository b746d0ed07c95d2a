"""Pictures in packs: the same content as in files of their own, whatever happens on the way."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pytest
from PIL import Image

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Trial, Verdict
from counterfoil.report.export import export
from counterfoil.report.pictures import Album
from counterfoil.store.pictures import Packed, Pictures
from counterfoil.web.catalogue import picture_file

from .made import CLASSES, PROVENANCE, SPEC, content, fill
from .test_crashes import Killed, _alter, _mortal, _truncate


def write(path: Path, images: int, *, packed: bool = True, part_images: int = 4, **options) -> list[str]:
    with store.write(path, SPEC, CLASSES, PROVENANCE, part_images=part_images, packed=packed, **options) as writer:
        fill(writer, range(images))
        writer.finish({"images": writer.counts["images"]})
        return writer.notes


def test_records_and_pictures_are_those_of_a_run_with_files(tmp_path: Path) -> None:
    write(tmp_path / "packs", 23)
    write(tmp_path / "files", 23, packed=False)
    packs, files = (store.open_run(tmp_path / name) for name in ("packs", "files"))
    assert content(packs) == content(files)
    assert not list((tmp_path / "packs").rglob("*.png"))
    (first, *_), (loose, *_) = packs.parts(), files.parts()
    assert first.pack is not None and first.pack.pictures == len(loose.pictures)


def test_one_run_may_hold_both(tmp_path: Path) -> None:
    write(tmp_path / "run", 9, packed=False)
    write(tmp_path / "run", 23)
    write(tmp_path / "files", 23, packed=False)
    assert content(store.open_run(tmp_path / "run")) == content(store.open_run(tmp_path / "files"))


@pytest.mark.parametrize("damage", [_truncate, Path.unlink])
def test_a_damaged_pack_is_noticed_and_its_images_redone(tmp_path: Path, damage) -> None:
    write(tmp_path / "run", 13)
    before = content(store.open_run(tmp_path / "run"))
    damage(tmp_path / "run" / "images" / "part-000001.pack")
    notes = write(tmp_path / "run", 13)
    assert len(notes) == 1 and "images/part-000001.pack" in notes[0]
    assert content(store.open_run(tmp_path / "run")) == before


def test_full_verification_hashes_what_is_in_a_pack(tmp_path: Path) -> None:
    write(tmp_path / "run", 13)
    before = content(store.open_run(tmp_path / "run"))
    pack = tmp_path / "run" / "images" / "part-000002.pack"
    data = bytearray(pack.read_bytes())
    data[3] ^= 1
    pack.write_bytes(data)
    assert write(tmp_path / "run", 13) == []  # the size is right
    assert "part-000002.pack" in write(tmp_path / "run", 13, verify="full")[0]
    assert content(store.open_run(tmp_path / "run")) == before


def test_a_damaged_picture_is_never_handed_out(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run = store.open_run(tmp_path)
    trial = next(trial for trial in run.trials if trial.image)
    for pack in (tmp_path / "images").glob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[: len(data) // 3] = bytes(len(data) // 3)
        pack.write_bytes(data)
    with pytest.raises(FileNotFoundError, match="damaged"):
        run.picture(trial).read_bytes()


def test_a_picture_that_is_in_no_pack_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run = store.open_run(tmp_path)
    missing = run.picture(Trial("a", "guided", 0, 0, "budget", 0, 0, image=f"images/00/{'0' * 64}.png"))
    assert isinstance(missing, Packed) and not missing.is_file() and missing.name == f"{'0' * 64}.png"
    with pytest.raises(BadRun, match="outside the run"):
        Pictures(tmp_path).at("../secret.png")


def test_killed_before_each_single_change_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with monkeypatch.context() as patch:
        changes = _mortal(patch, after=10**9)
        write(tmp_path / "whole", 3, part_images=2)
    whole = content(store.open_run(tmp_path / "whole"))
    for after in range(changes[0]):
        path = tmp_path / str(after)
        with monkeypatch.context() as patch:
            _mortal(patch, after=after)
            with contextlib.suppress(Killed):
                write(path, 3, part_images=2)
        assert write(path, 3, part_images=2) == []  # being killed is not damage
        assert content(store.open_run(path)) == whole
        assert not list(path.rglob("*.tmp"))


def test_an_altered_index_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 5)
    for pack in (tmp_path / "images").glob("*.pack"):
        _alter(pack)
        pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    run = store.open_run(tmp_path)
    trial = next(trial for trial in run.trials if trial.image)
    assert not run.picture(trial).is_file()


def test_report_review_and_export_read_packs(tmp_path: Path) -> None:
    png = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 90)).save(png, "PNG")
    with store.write(tmp_path / "run", SPEC, CLASSES, PROVENANCE, packed=True) as writer:
        made = writer.keep(png.getvalue())
        trial = Trial("a", "guided", 1, 1, "budget", 1, 2, clean=made, image=made)
        writer.add([trial], [], [Verdict("a#guided", "made", "clip:o", True, 0.9, 1)])
        writer.finish({})
    run = store.open_run(tmp_path / "run")
    album = Album(tmp_path / "report")
    assert album.keep(run.path, made) is not None and not album.missing
    assert picture_file(run.path, made).read_bytes() == png.getvalue()
    with pytest.raises(BadRun, match="missing"):
        picture_file(run.path, f"images/00/{'0' * 64}.png")
    told = export(run, tmp_path / "set", licence="MIT")
    assert told.size == 1
    assert [file.read_bytes() for file in (tmp_path / "set").rglob("*.png")] == [png.getvalue()]
