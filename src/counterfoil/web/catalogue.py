"""The runs under the served folder. Names in addresses become folders on disk here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from counterfoil.core.errors import BadRun, CounterfoilError
from counterfoil.store import ImageFile, Images, Run, open_run
from counterfoil.store.runfile import NAME

DEPTH = 6  # folders below the served one in which runs are looked for


class NotHere(CounterfoilError):
    """There is nothing of that name under the served folder."""


@dataclass(frozen=True)
class Catalogue:
    """The runs under `root`, or those of them that are named in `only`."""

    root: Path
    only: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The runs' names: their paths under the folder. Links are not followed."""
        found = self.only or tuple(self._walk(self.root, "", DEPTH))
        return sorted(found, key=str.casefold)

    def folder(self, name: str) -> Path:
        """The folder of a run; NotHere if there is none, or if the name leads elsewhere."""
        path = inside(self.root, name)
        if path is None or (self.only and name not in self.only) or not (path / NAME).exists():
            raise NotHere(f"no run named {name!r} here; the first page lists all there are")
        return path

    def open(self, name: str) -> Run:
        """The run of that name; BadRun says what is wrong with it."""
        return open_run(self.folder(name))

    def said(self, error: Exception) -> str:
        """An error's line without the path of the served folder, which is nobody's business."""
        return str(error).replace(f"{self.root}{os.sep}", "").replace(str(self.root), ".")

    def _walk(self, folder: Path, prefix: str, depth: int) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                folders = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in folders:
            if name.startswith(".") or not _printable(name):
                continue
            if (folder / name / NAME).exists():
                yield prefix + name
            elif depth:
                yield from self._walk(folder / name, f"{prefix}{name}/", depth - 1)


def inside(root: Path, name: str) -> Path | None:
    """The file or folder called `name` under `root`; None if there is none, or if the name or a link on the way leads out."""
    steps = name.split("/")
    if not name or "\0" in name or "\\" in name or any(step in ("", ".", "..") or step.startswith(".") for step in steps):
        return None
    try:
        path = root.joinpath(*steps)
        path.lstat()
        return path if path.resolve().is_relative_to(root.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # missing, too long, not encodable, links in a circle
        return None


def picture_file(run: Path, file: str) -> ImageFile:
    """An image of a run directory, or BadRun if it is missing or not in it."""
    found = _images(run).at(file)
    if not found.is_file():
        raise BadRun(f"{file}: this image is missing from the run directory")
    return found


@lru_cache(maxsize=16)
def _images(run: Path) -> Images:
    return Images(run)


def _printable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 have no place in an address
        return False
    return True
