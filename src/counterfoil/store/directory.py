"""Creating a run directory, or taking up one that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from counterfoil.core.errors import BadRun
from counterfoil.core.spec.base import FREE
from counterfoil.store import lock, parts, runfile
from counterfoil.store.files import TEMPORARY, remove, remove_empty, writing
from counterfoil.store.recovery import Recovered, recover
from counterfoil.store.schema import SCHEMAS
from counterfoil.store.writer import Writer

STAGES = "stages"
"""The folder of a staged protocol's tables; once something is in it, the run has begun."""


@contextmanager
def write(
    path: str | os.PathLike[str],
    spec: Mapping[str, Any],
    classes: Sequence[str],
    provenance: Mapping[str, Any],
    *,
    part_images: int = 64,
    packed: bool = False,
    verify: Literal["quick", "full"] = "quick",
    free: Collection[str] = FREE,
    pinned: Collection[str] = runfile.PINNED,
) -> Iterator[Writer]:
    """Create a run directory, or go on with the one that is there.

    Leaving the block commits what is complete, also after an exception; if that is nothing, what this call created is
    removed again. `free` names keys of the specification that may differ from the stored one, `pinned` keys of the
    provenance that may not. `verify="full"` hashes stored pictures instead of comparing their sizes. `packed` puts the
    pictures of a part into one file instead of one each.
    """
    root = Path(path)
    asked = runfile.described(spec, classes, provenance)
    made = _folder(root)
    try:
        with lock.hold(root):
            fresh = not (root / runfile.NAME).exists()
            writer: Writer | None = None
            try:
                state = _open(root, asked, full=verify == "full", free=free, pinned=pinned)
                writer = Writer(root, state, part_images=part_images, packed=packed)
                yield writer
                writer.commit()
            except BaseException:
                if writer is not None:
                    writer.salvage()
                if fresh and not parts.numbers(root) and not (root / STAGES).exists():
                    _clear(root)
                raise
    finally:
        remove_empty(made)  # in vain, as it should be, unless the run never began


def _open(root: Path, asked: runfile.RunFile, *, full: bool, free: Collection[str], pinned: Collection[str]) -> Recovered:
    notes: list[str] = []
    if (root / runfile.NAME).exists():
        notes = runfile.resume(root, runfile.load(root), asked, free=free, pinned=pinned)
    else:
        asked.save(root)
    with writing(root):
        state = recover(root, full=full)
    state.notes[:0] = notes
    return state


def _folder(root: Path) -> list[Path]:
    """Make sure the folder is there and may hold a run; answer the folders that had to be made."""
    with writing(root):
        if root.is_dir():
            names = set(os.listdir(root))
            # A writer killed in its first moments leaves a lock and perhaps an unfinished run.json: as good as empty.
            strange = {name for name in names if name != lock.NAME and not name.endswith(TEMPORARY)}
            if strange and runfile.NAME not in names:
                raise BadRun(f"{root}: not empty and not a run directory (it has {min(strange)}); choose another --out")
            return []
        if root.exists():
            raise BadRun(f"{root}: is a file, and a run needs a folder; choose another --out")
        made: list[Path] = []
        try:
            for folder in [each for each in (*reversed(root.parents), root) if not each.exists()]:
                folder.mkdir(exist_ok=True)
                made.append(folder)
        except BaseException:
            remove_empty(made)
            raise
        return made


def _clear(root: Path) -> None:
    """Take back all that a run without a part has put there; `run.json` goes last, as it marks the folder as ours."""
    for name in (parts.MANIFESTS, parts.IMAGES, *SCHEMAS):
        shutil.rmtree(root / name, ignore_errors=True)
    remove(root / runfile.NAME)
    remove(root / lock.NAME)
