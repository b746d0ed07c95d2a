"""Parts: the unit in which records are committed, checked and, if damaged, dropped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun
from counterfoil.store.canonical import canonical
from counterfoil.store.files import key_of, sha256_of, write_whole
from counterfoil.store.pack import SUFFIX, Pack, PackReader
from counterfoil.store.schema import SCHEMAS

MANIFESTS = "parts"
IMAGES = "images"


@dataclass(frozen=True)
class Table:
    """One Parquet file of a part, as it was when it was written."""

    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Part:
    """A committed part: its tables and pictures, and how many source images they are about."""

    number: int
    tables: Mapping[str, Table]
    pictures: Mapping[str, int] = field(default_factory=dict)  # files of their own: sizes by name, which is the content's hash
    images: int = 0
    validated: int = 0
    skipped: int = 0
    mark: str = ""  # what the part was derived from, where that can change: see `Writer.begin`
    pack: Pack | None = None  # where its pictures are if they have no files of their own


class Damaged(Exception):
    """A part is not what its manifest says."""


def manifest_path(root: Path, number: int) -> Path:
    """Where a part's manifest is."""
    return root / MANIFESTS / f"{number:06d}.json"


def table_path(root: Path, table: str, number: int) -> Path:
    """Where a part's Parquet file for `table` is."""
    return root / table / f"part-{number:06d}.parquet"


def pack_path(root: Path, number: int) -> Path:
    """Where a part's pack of pictures is."""
    return root / IMAGES / f"part-{number:06d}{SUFFIX}"


def picture_name(sha256: str) -> str:
    """Where a picture is, relative to the run directory: by content, so equal pictures are kept once."""
    return f"{IMAGES}/{sha256[:2]}/{sha256}.png"


def commit(root: Path, part: Part) -> None:
    """Make a part exist. Its tables and pictures must be on the disk already."""
    entries = {name: value for name, value in asdict(part).items() if name not in ("mark", "pack") or value}
    write_whole(manifest_path(root, part.number), canonical(entries))


def write_table(root: Path, table: str, number: int, *, data: bytes, rows: int) -> Table:
    """Put one Parquet file of a part on the disk."""
    write_whole(table_path(root, table, number), data)
    return Table(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), rows=rows)


def numbers(root: Path) -> list[int]:
    """Numbers of the parts that have a manifest, whole or not, in order."""
    try:
        names = os.listdir(root / MANIFESTS)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def read_part(root: Path, number: int) -> Part:
    """The part as its manifest describes it."""
    path = manifest_path(root, number)
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        tables = {name: Table(**table) for name, table in values.pop("tables").items() if name in SCHEMAS}
        pack = values.pop("pack", None)
        return Part(**values, tables=tables, pack=Pack(**pack) if pack else None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{MANIFESTS}/{path.name} cannot be read") from error


def check(root: Path, part: Part, *, full: bool) -> None:
    """Raise Damaged unless every file of the part is whole; pictures by their size or, if `full`, their hash."""
    for name, table in part.tables.items():
        path = table_path(root, name, part.number)
        where = path.relative_to(root)
        if _size(path) != table.bytes:
            raise Damaged(f"{where} is missing or cut short")
        if sha256_of(path) != table.sha256:
            raise Damaged(f"{where} does not have the hash it was written with")
    for name, size in part.pictures.items():
        if _size(root / name) != size:
            raise Damaged(f"{name} is missing or cut short")
        if full and picture_name(sha256_of(root / name)) != name:
            raise Damaged(f"{name} does not have the hash it was written with")
    if part.pack is not None:
        _check_pack(root, part.number, part.pack, full=full)


def _check_pack(root: Path, number: int, pack: Pack, *, full: bool) -> None:
    path = pack_path(root, number)
    where = path.relative_to(root)
    if _size(path) != pack.bytes:
        raise Damaged(f"{where} is missing or cut short")
    if not full:
        return
    try:
        reader = PackReader(path)
    except (OSError, ValueError) as error:
        raise Damaged(f"{where} cannot be read") from error
    for digest in reader:
        if hashlib.sha256(reader.read(digest) or b"").digest() != digest:
            raise Damaged(f"{picture_name(digest.hex())} in {where} does not have the hash it was written with")


def batches(root: Path, table: str, number: int, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one table of one part, a batch at a time."""
    path = table_path(root, table, number)
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=8192, columns=list(columns) if columns else None, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise BadRun(f"{path}: damaged or missing; repeat the command that wrote it and the part is redone") from error


def image_keys(root: Path, number: int) -> NDArray[np.uint64]:
    """The keys of the images that a part's trials are about, in no order."""
    found: list[int] = []
    for batch in batches(root, "trials", number, columns=["image_id"]):
        found += map(key_of, pc.unique(batch.column("image_id")).to_pylist())  # an image's trials stand together
    return np.array(found, dtype=np.uint64)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
