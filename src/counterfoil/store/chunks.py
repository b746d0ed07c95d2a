"""Chunks: the pieces in which a run is committed, checked and, if damaged, dropped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.store.files import (
    TEMPORARY,
    canonical,
    read_as,
    remove,
    sha256_of,
    size_of,
    sync,
    write_temporary,
    write_whole,
    writing,
)
from counterfoil.store.images import IMAGES, ZIP, digest_of, image_name, read_zip, zip_of
from counterfoil.store.tables import SCHEMAS, read_rows, to_parquet

CHUNKS = "chunks"
CONTENTS = "chunks.json"
RESULTS = "results.json"

_SYNCERS = 8
_ZIP_BYTES, _ZIP_IMAGES = 2**27, 50_000  # from which on a zip takes no more images: until it is written, it is in memory


class Damaged(Exception):
    """A chunk is not what its manifest says."""


@dataclass(frozen=True)
class TableFile:
    """One Parquet file of a chunk, as it was written."""

    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Chunk:
    """A piece of a run. Plain data: a worker sends it to the driver, which commits it."""

    token: str  # in the names of its files
    tables: Mapping[str, TableFile]
    files: Mapping[str, int] = field(default_factory=dict)  # sizes of images that are files of their own, by name
    zip: int = 0  # bytes of the zip of its other images; 0 without one
    images: int = 0  # source images that its trials are about
    accepted: int = 0
    skipped: int = 0
    mark: str = ""  # of the stage tables that its trials were made from; empty where those cannot change
    number: int = -1  # in the run, once committed
    image_ids: tuple[str, ...] = ()  # for the committer; not in the manifest

    def table_path(self, root: Path, table: str) -> Path:
        """Place of one of its Parquet files."""
        return root / table / f"{self.token}.parquet"

    def zip_path(self, root: Path) -> Path:
        """Place of its zip of images."""
        return root / IMAGES / f"{self.token}{ZIP}"

    def without(self, root: Path, image_ids: Collection[str]) -> Chunk:
        """The chunk without some of its source images; for one that is not committed yet."""
        rest = ChunkBuilder(root, f"{self.token}-rest", packed=bool(self.zip))
        rows: dict[str, dict[str, list[Any]]] = {each: {} for each in self.image_ids if each not in image_ids}
        for table in self.tables:
            for row in read_rows(_temporary(self.table_path(root, table)), table):
                if (image_id := row.trial_id.rpartition("#")[0]) in rows:
                    rows[image_id].setdefault(table, []).append(row)
        packed = read_zip(_temporary(self.zip_path(root))) if self.zip else {}
        for own in rows.values():
            named = [digest_of(name) for name in _names(own["trials"])]
            images = [packed[digest] for digest in named if digest in packed]
            rest.add(own["trials"], own.get("predictions", ()), own.get("verdicts", ()), images)
        self.drop(root)
        return rest.close()

    def commit(self, root: Path, number: int, *, mark: str = "") -> Chunk:
        """Make the chunk part of the run: its files get their names, then the manifest. After a failure, call it again."""
        chunk = replace(self, number=number, mark=mark, image_ids=())
        with writing(root):
            for path in self.paths(root):
                temporary = _temporary(path)
                if temporary.exists() or not path.exists():  # a second call finds some in place
                    os.replace(temporary, path)
            for folder in sorted({path.parent for path in self.paths(root)}):
                sync(folder)
            manifest = {name: value for name, value in asdict(chunk).items() if name not in ("number", "image_ids")}
            write_whole(manifest_path(root, number), canonical(manifest))
        return chunk

    def find_damage(self, root: Path) -> dict[Path, str]:
        """Files of the chunk that are not whole, and how: tables are known by their hash, images by their size."""
        sizes = {self.table_path(root, name): table.bytes for name, table in self.tables.items()}
        sizes |= {root / name: size for name, size in self.files.items()}
        sizes |= {self.zip_path(root): self.zip} if self.zip else {}
        found = {path: "is missing or cut short" for path, size in sizes.items() if size_of(path) != size}
        for name, table in self.tables.items():
            path = self.table_path(root, name)
            if path not in found and sha256_of(path) != table.sha256:
                found[path] = "does not have the hash it was written with"
        return found

    def drop(self, root: Path) -> None:
        """Remove the chunk, committed or not. Images that are files of their own stay: others may share them."""
        if self.number >= 0:
            with writing(root):
                manifest_path(root, self.number).unlink(missing_ok=True)
        for path in self.paths(root):
            remove(path)
            remove(_temporary(path))

    def paths(self, root: Path) -> list[Path]:
        """Places of its tables and its zip."""
        return [self.table_path(root, table) for table in self.tables] + ([self.zip_path(root)] if self.zip else [])


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY)


def manifest_path(root: Path, number: int) -> Path:
    """Place of a chunk's manifest."""
    return root / CHUNKS / f"{number:06d}.json"


def numbers(root: Path) -> list[int]:
    """Numbers of the chunks that have a manifest, damaged or not, in order."""
    try:
        names = os.listdir(root / CHUNKS)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())


def read_chunk(root: Path, number: int) -> Chunk:
    """The chunk as its manifest describes it."""
    path = manifest_path(root, number)
    try:
        chunk: Chunk = replace(read_as(Chunk, path), number=number)
    except ValueError:
        raise Damaged(f"{path.relative_to(root)} cannot be read") from None
    return replace(chunk, tables={name: table for name, table in chunk.tables.items() if name in SCHEMAS})


@dataclass(frozen=True)
class Contents:
    """`chunks.json`: which chunks a run is made of, as of the end of the last command that wrote to it."""

    mark: str = ""  # of the trials that readers see
    chunks: tuple[tuple[int, int], ...] = ()  # first and last number of each range
    outdated: bool = False  # whether the run's own model or oracle has answered since the results were computed

    @classmethod
    def of(cls, root: Path) -> Contents:
        """Read the file; a run that was never closed has none."""
        path = root / CONTENTS
        try:
            found: Contents = read_as(Contents, path) if path.exists() else cls()
        except ValueError:
            raise BadRun(f"{path}: damaged; repeat the run's command and it is written again") from None
        return found

    def update(self, root: Path, *, without: Collection[int] = (), **changes: Any) -> Contents:
        """Write the file with the chunks that are there now, but for some that are going to be dropped, and other changes."""
        ranges: list[tuple[int, int]] = []
        for number in (each for each in numbers(root) if each not in without):
            first = ranges.pop()[0] if ranges and ranges[-1][1] == number - 1 else number
            ranges.append((first, number))
        contents, path = replace(self, chunks=tuple(ranges), **changes), root / CONTENTS
        data = canonical(asdict(contents))
        with writing(root):
            if not path.exists() or path.read_bytes() != data:
                write_whole(path, data)
        return contents

    def missing(self, there: Iterable[int]) -> list[int]:
        """Numbers of chunks that should be there and are not."""
        held = set(there)
        return [number for first, last in self.chunks for number in range(first, last + 1) if number not in held]


class ChunkBuilder:
    """Gathers records in memory and writes images to the disk, until all of it is written under temporary names."""

    def __init__(self, root: Path, token: str, *, packed: bool = False) -> None:
        self.root = root
        self.chunk = Chunk(token, {})
        """The chunk so far, without its files."""
        self.packed_files: list[str] = []
        """Images that were files of their own and are in the zip too."""
        self._packed = packed
        self._tables: dict[str, list[Any]] = {name: [] for name in SCHEMAS}
        self._files: dict[str, int] = {}
        self._new: list[Path] = []
        self._zip: dict[str, bytes] = {}
        self._zip_bytes = 0

    def __len__(self) -> int:
        return self.chunk.images

    @property
    def rows(self) -> int:
        """Rows in all tables."""
        return sum(map(len, self._tables.values()))

    @property
    def is_full(self) -> bool:
        """Tell whether its zip takes no more images."""
        return self._zip_bytes > _ZIP_BYTES or len(self._zip) > _ZIP_IMAGES

    def add(
        self, trials: Sequence[Trial], predictions: Sequence[Prediction], verdicts: Sequence[Verdict], images: Iterable[bytes]
    ) -> None:
        """Add all there is of one source image. `images` are the PNG files that its trials name.

        Images that are in the run's folder already may be left out.
        """
        image_id = _one_image(trials, predictions, verdicts)
        given = {image_name(png): png for png in images}
        with writing(self.root):
            sizes = {name: self._store(name, given.get(name)) for name in _names(trials)}
        kept = [replace(each, image_sha256=digest_of(each.image), image_bytes=sizes[each.image]) if each.image else each
                for each in trials]  # fmt: skip
        self.add_rows(trials=kept, predictions=predictions, verdicts=verdicts)
        self.chunk = replace(
            self.chunk,
            images=self.chunk.images + 1,
            accepted=self.chunk.accepted + any(each.validated for each in trials if each.arm not in ("random", "source")),
            skipped=self.chunk.skipped + any(each.ending == "skipped" for each in trials),
            image_ids=(*self.chunk.image_ids, image_id),
        )

    def add_rows(self, **rows: Sequence[Any]) -> None:
        """Add rows to tables by their names."""
        for table, records in rows.items():
            self._tables[table].extend(records)

    def close(self) -> Chunk:
        """Force everything onto the disk under temporary names. After a failure, call it again."""
        with writing(self.root):
            size = self._write(self.chunk.zip_path(self.root), zip_of(self._zip)) if self._zip else 0
            tables = {name: self._write_table(name) for name, records in self._tables.items() if records}
            chunk = replace(self.chunk, tables=tables, files=dict(self._files), zip=size)
            files = self._new + [_temporary(path) for path in chunk.paths(self.root)]
            # Side by side, because the disk serves many such requests in about the time of one.
            with ThreadPoolExecutor(_SYNCERS) as syncers:
                list(syncers.map(sync, files))
        return chunk

    def discard(self, number: int = -1) -> None:
        """Remove what was written, and perhaps committed. Images stay: when the run is resumed the same ones are made."""
        replace(self.chunk, tables=dict.fromkeys(SCHEMAS, TableFile("", 0, 0)), zip=1, number=number).drop(self.root)

    def _store(self, name: str, png: bytes | None) -> int:
        """Write an image unless it is there; return its size."""
        path, digest = self.root / name, digest_of(name)
        if png is None and (self._packed or size_of(path) < 0):
            try:
                png = path.read_bytes()
            except FileNotFoundError:
                raise ValueError(f"image {name!r} was not given with its trial, and is not in the run") from None
            self.packed_files.append(name)
        size = len(png) if png is not None else size_of(path)
        if self._packed and png is not None:
            self._zip_bytes += 0 if digest in self._zip else size
            self._zip.setdefault(digest, png)
            return size
        if png is not None and size_of(path) != size:
            write_whole(path, png, token=self.chunk.token, synced=False)
            self._new.append(path)
        self._files[name] = size
        return size

    def _write(self, path: Path, data: bytes | memoryview) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_temporary(path, data)
        return len(data)

    def _write_table(self, table: str) -> TableFile:
        data = to_parquet(table, self._tables[table])
        size = self._write(self.chunk.table_path(self.root, table), data)
        return TableFile(hashlib.sha256(data).hexdigest(), size, len(self._tables[table]))


def _names(trials: Sequence[Trial]) -> Iterator[str]:
    """Names of all images of some trials, each once."""
    every = (name for trial in trials for name in (trial.clean, trial.reconstruction, trial.image) if name)
    yield from dict.fromkeys(every)


def _one_image(trials: Sequence[Trial], predictions: Sequence[Prediction], verdicts: Sequence[Verdict]) -> str:
    """The image that all records are about."""
    images = {trial.image_id for trial in trials}
    if len(images) != 1:
        raise ValueError(f"add takes the trials of one image at a time, got {sorted(images)}")
    known = {trial.trial_id for trial in trials}
    named = {each.trial_id for each in predictions} | {each.trial_id for each in verdicts}
    if not named <= known or len(known) != len(trials):
        raise ValueError(f"records for {sorted(named)} do not fit the trials {[trial.trial_id for trial in trials]}")
    return images.pop()
