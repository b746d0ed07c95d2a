"""Writes a set into a folder: whole or not at all, with a checksum of every file."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from counterfoil.core.errors import UsageError
from counterfoil.parts.labels import CLASSES_FILE
from counterfoil.report.export.about import About
from counterfoil.report.export.about import about as gather
from counterfoil.report.export.datasheet import datasheet
from counterfoil.report.export.formats import FORMATS
from counterfoil.report.export.pictures import COLUMNS, Picture, chosen, rows
from counterfoil.report.export.reading import SET_FILE, TABLE
from counterfoil.store import Run
from counterfoil.store.files import sha256_of

SUMS = "SHA256SUMS"
PARTIAL = ".partial"

Watch = Callable[[int], None]


def export(
    run: Run,
    out: Path,
    *,
    layout: str = "folder",
    name: str | None = None,
    licence: str | None = None,
    note: str = "",
    watch: Watch = lambda pictures: None,
) -> About:
    """Write the accepted pictures of a run as a set. `watch` hears of pictures as they are written."""
    if layout not in FORMATS:
        raise UsageError(f"no format named {layout!r}; there are {', '.join(FORMATS)}")
    pictures = chosen(run)
    told = gather(run, pictures, name=name or out.name, licence=licence, note=note)
    with _whole(out) as folder:
        made = FORMATS[layout](folder, told, pictures, watch)
        write_table(folder / TABLE, pictures, made.names)
        (folder / CLASSES_FILE).write_text("".join(f"{name}\n" for name in told.labels), encoding="utf-8")
        (folder / SET_FILE).write_text(json.dumps(told.set_file(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        lines = [*made.layout, f"`{TABLE}`: one row a picture: {', '.join(COLUMNS)}"]
        lines += [f"`{CLASSES_FILE}`: what the numbers of labels mean", f"`{SUMS}`: the SHA-256 of every file"]
        (folder / "README.md").write_text(datasheet(told, pictures, layout=lines, front=made.front), encoding="utf-8")
        for finish in made.last:  # what describes the other files, once they are there
            finish()
        write_sums(folder)
    return told


def write_table(path: Path, pictures: Sequence[Picture], names: Mapping[str, str] | None) -> None:
    """The table of the set; `names` are file names where a format has others. Line breaks in texts become spaces."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        table.writeheader()
        for row in rows(pictures):
            texts = {key: " ".join(value.split()) for key, value in row.items() if isinstance(value, str)}
            table.writerow({**row, **texts, "file_name": (names or {}).get(row["file_name"], row["file_name"])})


def write_sums(folder: Path) -> None:
    """The checksums of all files, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    lines = [f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place once everything is written."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is there already; choose another --out, or remove it first")
    partial = out.with_name(out.name + PARTIAL)
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
        partial.mkdir(parents=True)
        yield partial
        if out.is_dir():
            out.rmdir()
        os.replace(partial, out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
