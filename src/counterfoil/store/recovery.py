"""Opening a run directory that was written before: drop damaged parts, remove leftovers, list what is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.store import parts
from counterfoil.store.files import TEMPORARY, key_of, remove
from counterfoil.store.schema import SCHEMAS

RESULTS = "results.json"


class Done:
    """The images that are complete, held as eight bytes each; two ids share them once in some ten billion runs."""

    def __init__(self) -> None:
        self._keys: set[int] = set()

    def __contains__(self, image_id: str) -> bool:
        return key_of(image_id) in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, image_id: str) -> None:
        """Count an image as complete."""
        self._keys.add(key_of(image_id))

    def clear(self) -> None:
        """Count none as complete."""
        self._keys.clear()


@dataclass
class Recovered:
    """What a run directory holds once it has been put in order."""

    done: Done = field(default_factory=Done)
    counts: dict[str, int] = field(default_factory=lambda: {"images": 0, "validated": 0, "skipped": 0})
    next_number: int = 0
    notes: list[str] = field(default_factory=list)


def recover(root: Path, *, full: bool) -> Recovered:
    """Put the directory in order, under its lock, and say what is there."""
    state = Recovered()
    tables: set[Path] = set()
    pictures: set[int] = set()  # keys of their names
    for number in parts.numbers(root):
        try:
            part = parts.read_part(root, number)
            parts.check(root, part, full=full)
        except parts.Damaged as damage:
            remove(root / RESULTS)  # it speaks of images that are now gone
            parts.manifest_path(root, number).unlink()
            state.notes.append(f"part {number} dropped, its work is done again: {damage}")
            continue
        state.next_number = number + 1
        for name in state.counts:
            state.counts[name] += getattr(part, name)
        tables.update(parts.table_path(root, name, number) for name in part.tables)
        pictures.update(key_of(name) for name in part.pictures)
        if "trials" in part.tables:
            for image_id in parts.image_ids(root, number):
                state.done.add(image_id)
    _sweep(root, tables, pictures)
    return state


def _sweep(root: Path, tables: set[Path], pictures: set[int]) -> None:
    """Remove what no part owns: the work of a writer that was killed before it could commit."""
    for name in SCHEMAS:
        for path in _files(root / name):
            if path not in tables:
                remove(path)
    for shard in _folders(root / parts.IMAGES):
        for path in _files(shard):
            if key_of(path.relative_to(root).as_posix()) not in pictures:
                remove(path)
    for folder in (root, root / parts.MANIFESTS):
        for path in _files(folder):
            if path.name.endswith(TEMPORARY):
                remove(path)


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
