"""Opening a run directory that was written before: drop damaged parts, remove leftovers, list what is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from counterfoil.store import aside, parts
from counterfoil.store.done import Done
from counterfoil.store.files import TEMPORARY, key_of, remove
from counterfoil.store.schema import SCHEMAS

RESULTS = "results.json"
_READERS = 4


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
    owned: set[Path] = set()
    pictures: set[int] = set()  # keys of their names
    numbers = parts.numbers(root)
    with ThreadPoolExecutor(_READERS) as readers:  # hashing and reading wait for the disk and leave the processor free
        found = readers.map(lambda number: _examined(root, number, full=full), numbers)
        for number, (part, keys) in zip(numbers, found, strict=True):
            if isinstance(part, parts.Damaged):
                remove(root / RESULTS)  # it speaks of images that are now gone
                parts.manifest_path(root, number).unlink()
                state.notes.append(f"part {number} dropped, its work is done again: {part}")
                continue
            state.next_number = number + 1
            for name in state.counts:
                state.counts[name] += getattr(part, name)
            owned.update(parts.table_path(root, name, number) for name in part.tables)
            if part.pack is not None:
                owned.add(parts.pack_path(root, number))
            pictures.update(key_of(name) for name in part.pictures)
            if keys is not None:
                state.done.add_keys(keys)
    _sweep(root, owned, pictures)
    aside.sweep(root)
    state.next_number = max([state.next_number, *(number + 1 for number in aside.numbers(root))])
    return state


def _examined(root: Path, number: int, *, full: bool) -> tuple[parts.Part | parts.Damaged, NDArray[Any] | None]:
    """A part and the keys of its images, or what is wrong with it."""
    try:
        part = parts.read_part(root, number)
        parts.check(root, part, full=full)
    except parts.Damaged as damage:
        return damage, None
    return part, parts.image_keys(root, number) if "trials" in part.tables else None


def _sweep(root: Path, owned: set[Path], pictures: set[int]) -> None:
    """Remove what no part owns: the work of a writer that was killed before it could commit."""
    for name in (*SCHEMAS, parts.IMAGES):
        for path in _files(root / name):
            if path not in owned:
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
