"""A disk that fails, at once or on the way: one line, and whole chunks only."""

from __future__ import annotations

import errno
import os

import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.store.chunks import ChunkBuilder

from .faults import failing
from .made import CLASSES, PROVENANCE, SPEC, every_file, holds, image_id, records, write

FAULTS = [
    (errno.ENOSPC, "No space left on device", "free some space"),
    (errno.EROFS, "Read-only file system", "choose another --out"),
    (errno.EACCES, "Permission denied", "permissions"),
]


@pytest.mark.parametrize(("code", "said", "advice"), FAULTS)
@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "replace"])
def test_a_disk_that_fails_from_the_start_leaves_nothing(tmp_path, monkeypatch, call, code, said, advice) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(getattr(os, call), code, after=0))
        with pytest.raises(BadRun, match=rf"cannot be written \({said}\); .*{advice}"):
            write(tmp_path / "out" / "run", range(9))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "replace"])
def test_a_disk_that_fills_up_leaves_whole_chunks_only(tmp_path, monkeypatch, call, packed) -> None:
    """The fault strikes at the first call, at the second, and so on; what is left must always resume to the same end."""
    for after in range(2, 60, 8):
        path = tmp_path / f"{call}{after}"
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(getattr(os, call), errno.ENOSPC, after=after))
            try:
                write(path, range(9), chunk_images=2, packed=packed)
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
        owned = {name for chunk in run.chunks() for name in chunk.files}
        owned |= {chunk.zip_path(path).relative_to(path).as_posix() for chunk in run.chunks() if chunk.zip}
        assert owned <= {name for name in names if name.startswith("images/")}
        assert not [name for name in names if name.endswith(".zip") and name not in owned]
        assert not [name for name in names if name.endswith(".tmp")]
        write(path, range(9), packed=packed)
        assert holds(run, range(9))


def test_a_chunk_of_a_worker_whose_files_are_not_to_be_seen_here_is_not_committed(tmp_path) -> None:
    """As on a machine that does not share the worker's disk, or whose file system is late."""
    path = tmp_path / "run"
    write(path, range(3))
    builder = ChunkBuilder(path, "elsewhere")
    builder.add(*records(7))
    chunk = builder.close()
    (path / "verdicts" / "elsewhere.parquet.tmp").rename(tmp_path / "hidden")
    with pytest.raises(BadRun, match="No such file"), store.write(path, SPEC, CLASSES, PROVENANCE) as writer:
        writer.commit(chunk)
    assert {trial.image_id for trial in store.open_run(path).trials} == {image_id(number) for number in range(3)}
