"""Making a staged part one of the run's, under its lock: files get their final names, then the manifest commits them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from counterfoil.store import parts
from counterfoil.store.files import remove, settle, writing
from counterfoil.store.recovery import RESULTS
from counterfoil.store.staging import Staged


def adopt(root: Path, staged: Staged, number: int, *, mark: str = "") -> parts.Part:
    """Give a staged part its number. After a failure it may be called again with the same number."""
    with writing(root):
        folders = set()
        for temporary, final in _moves(root, staged, number):
            if temporary.exists() or not final.exists():  # tried again, it finds some in place already
                os.replace(temporary, final)
            # Folders of single pictures are not forced to disk: a hundred of them a part would cost more than the
            # pictures, and a picture that a power cut takes away is missed when the run is resumed.
            if final.suffix != ".png":
                folders.add(final.parent)
        for folder in sorted(folders):
            settle(folder)
        remove(root / RESULTS)  # it does not know of these images
        part = parts.Part(number, staged.tables, staged.pictures, **staged.counts, mark=mark, pack=staged.pack)
        parts.commit(root, part)
    return part


def withdraw(root: Path, staged: Staged, number: int) -> None:
    """Take back a part that could not be adopted, so that no trace of it is left."""
    remove(parts.manifest_path(root, number))
    for table in staged.tables:
        remove(parts.table_path(root, table, number))
    remove(parts.pack_path(root, number))
    for name in staged.new:
        remove(root / name)
    staged.discard(root)


def _moves(root: Path, staged: Staged, number: int) -> Iterator[tuple[Path, Path]]:
    for table in staged.tables:
        yield staged.table(root, table), parts.table_path(root, table, number)
    if staged.pack is not None:
        yield staged.packed(root), parts.pack_path(root, number)
    for name in staged.new:
        yield staged.picture(root, name), root / name
