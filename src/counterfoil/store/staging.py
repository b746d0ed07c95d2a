"""Gathering a part: records in memory, pictures on the disk under temporary names, until all of it is staged at once.

Any process may stage parts; only the holder of the run's lock adopts them, see `adoption.py`. What a process that was
killed had staged is swept away as a leftover.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.store import parts
from counterfoil.store.files import TEMPORARY, remove, settle, write_temporary, writing
from counterfoil.store.pack import SUFFIX, Pack, PackWriter
from counterfoil.store.schema import to_parquet

_SETTLERS = 8
_TABLES = ("trials", "predictions", "verdicts")


@dataclass(frozen=True)
class Staged:
    """A part that lies on the disk under temporary names; plain data, so that it can be sent to who adopts it."""

    token: str
    tables: Mapping[str, parts.Table]
    pictures: Mapping[str, int] = field(default_factory=dict)  # sizes by name, of those that are files of their own
    new: frozenset[str] = frozenset()  # those of them that were not in place before
    pack: Pack | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    image_ids: tuple[str, ...] = ()

    def table(self, root: Path, table: str) -> Path:
        """Where one of its tables is."""
        return staged_table(root, table, self.token)

    def picture(self, root: Path, name: str) -> Path:
        """Where one of its new pictures is."""
        return staged_picture(root, name, self.token)

    def packed(self, root: Path) -> Path:
        """Where its pack is."""
        return staged_pack(root, self.token)

    def discard(self, root: Path) -> None:
        """Leave no trace of it."""
        for table in _TABLES:
            remove(self.table(root, table))
        for name in self.new:
            remove(self.picture(root, name))
        remove(self.packed(root))


class PartBuffer:
    """Takes in what was made of some images, then stages it."""

    def __init__(self, root: Path, token: str, *, packed: bool) -> None:
        self.root, self.token = root, token
        self.counts = {"images": 0, "validated": 0, "skipped": 0}
        self._packed = packed
        self._tables: dict[str, list[Any]] = {name: [] for name in _TABLES}
        self._image_ids: list[str] = []
        self._pictures: dict[str, int] = {}  # sizes by name, of complete images
        self._loose: dict[str, tuple[str, bytes]] = {}  # hash and content by name, of the image that is not complete yet
        self._new: set[str] = set()
        self._pack: PackWriter | None = None

    def keep(self, png: bytes) -> str:
        """Keep a picture of the image that is added next, and answer its name relative to the run directory."""
        digest = hashlib.sha256(png).hexdigest()
        name = parts.picture_name(digest)
        self._loose[name] = (digest, png)
        return name

    def add(
        self,
        trials: Sequence[Trial],
        predictions: Sequence[Prediction],
        verdicts: Sequence[Verdict],
        pictures: Mapping[str, bytes] | None = None,
    ) -> str:
        """Take in all there is of one source image and answer its id. `pictures` are the made ones by trial id."""
        pictures = pictures or {}
        image_id = one_image(trials, predictions, verdicts, pictures)
        names = {trial_id: self.keep(png) for trial_id, png in pictures.items()}
        kept = [self._described(trial, names.get(trial.trial_id, trial.image)) for trial in trials]
        with writing(self.root):
            self._write_pictures()
        for table, records in zip(_TABLES, (kept, predictions, verdicts), strict=True):
            self._tables[table].extend(records)
        self._image_ids.append(image_id)
        count(self.counts, trials)
        return image_id

    def stage(self) -> Staged:
        """Put everything on the disk to stay, under temporary names. After a failure it may be called again."""
        with writing(self.root):
            pack = self._pack.finish() if self._pack is not None else None
            tables = {name: self._stage_table(name) for name, records in self._tables.items() if records}
            files = [staged_table(self.root, name, self.token) for name in tables]
            files += [staged_picture(self.root, name, self.token) for name in self._new]
            # Side by side, because the disk serves many such requests in about the time of one.
            with ThreadPoolExecutor(_SETTLERS) as settlers:
                list(settlers.map(settle, files))
        return Staged(
            self.token,
            tables=tables,
            pictures=dict(self._pictures),
            new=frozenset(self._new),
            pack=pack,
            counts=dict(self.counts),
            image_ids=tuple(self._image_ids),
        )

    def discard(self) -> None:
        """Leave no trace of what was taken in."""
        if self._pack is not None:
            self._pack.close()
        Staged(self.token, {}, new=frozenset(self._new)).discard(self.root)

    def hand_over(self, following: PartBuffer) -> None:
        """Pictures that were kept for the image to come belong to the next part."""
        following._loose, self._loose = self._loose, {}

    def _described(self, trial: Trial, name: str) -> Trial:
        """The trial with its made picture's name, hash and size filled in."""
        if not name:
            return trial
        if name not in self._loose:
            raise ValueError(f"{trial.trial_id}: picture {name!r} was not kept with this image")
        digest, png = self._loose[name]
        if (trial.image, trial.image_sha256, trial.image_bytes) == (name, digest, len(png)):
            return trial
        return dataclasses.replace(trial, image=name, image_sha256=digest, image_bytes=len(png))

    def _write_pictures(self) -> None:
        for name, (digest, png) in self._loose.items():
            if self._packed:
                if self._pack is None:
                    (self.root / parts.IMAGES).mkdir(parents=True, exist_ok=True)
                    self._pack = PackWriter(staged_pack(self.root, self.token))
                self._pack.add(bytes.fromhex(digest), png)
                continue
            if name not in self._new and not (self.root / name).exists():
                path = staged_picture(self.root, name, self.token)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_temporary(path.with_name(path.name.removesuffix(TEMPORARY)), png)
                self._new.add(name)
            self._pictures[name] = len(png)
        self._loose = {}

    def _stage_table(self, table: str) -> parts.Table:
        records = self._tables[table]
        data = to_parquet(table, records)
        path = staged_table(self.root, table, self.token)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_temporary(path.with_name(path.name.removesuffix(TEMPORARY)), data)
        return parts.Table(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), rows=len(records))


def staged_table(root: Path, table: str, token: str) -> Path:
    """Where a table of a staged part is."""
    return root / table / f"part-{token}.parquet{TEMPORARY}"


def staged_picture(root: Path, name: str, token: str) -> Path:
    """Where a new picture of a staged part is; two processes may keep the same one."""
    return root / f"{name}.{token}{TEMPORARY}"


def staged_pack(root: Path, token: str) -> Path:
    """Where the pack of a staged part is."""
    return root / parts.IMAGES / f"part-{token}{SUFFIX}{TEMPORARY}"


def one_image(
    trials: Sequence[Trial],
    predictions: Sequence[Prediction],
    verdicts: Sequence[Verdict],
    pictures: Mapping[str, bytes],
) -> str:
    """The image that all of it is about."""
    images = {trial.image_id for trial in trials}
    if len(images) != 1:
        raise ValueError(f"add takes the trials of one image at a time, got {sorted(images)}")
    known = {trial.trial_id for trial in trials}
    named = {each.trial_id for each in predictions} | {each.trial_id for each in verdicts} | set(pictures)
    if not named <= known or len(known) != len(trials):
        raise ValueError(f"records for {sorted(named)} do not fit the trials {[trial.trial_id for trial in trials]}")
    return images.pop()


def count(counts: dict[str, int], trials: Sequence[Trial]) -> None:
    """Count one image."""
    counts["images"] += 1
    counts["validated"] += any(trial.validated for trial in trials if trial.arm not in ("random", "source"))
    counts["skipped"] += any(trial.ending == "skipped" for trial in trials)
