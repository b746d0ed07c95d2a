"""Writing a run directory: add what was made of each image, commit it in parts."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.errors import BadData
from counterfoil.records import Prediction, Trial, Verdict
from counterfoil.store import parts
from counterfoil.store.canonical import canonical
from counterfoil.store.files import TEMPORARY, remove, settle, write_temporary, write_whole, writing
from counterfoil.store.recovery import RESULTS, Recovered
from counterfoil.store.schema import to_parquet

_SETTLERS = 8


@dataclass
class _Waiting:
    """What has been taken in since the last part."""

    tables: dict[str, list[Any]] = field(default_factory=lambda: {"trials": [], "predictions": [], "verdicts": []})
    pictures: dict[str, int] = field(default_factory=dict)  # sizes by name, of complete images
    loose: dict[str, int] = field(default_factory=dict)  # of the image that is not complete yet
    new: set[str] = field(default_factory=set)  # those of them that no earlier part has
    counts: dict[str, int] = field(default_factory=lambda: {"images": 0, "validated": 0, "skipped": 0})


class Writer:
    """Takes in what was made of each image. `store.write` makes one and holds the directory's lock meanwhile."""

    def __init__(self, root: Path, state: Recovered, *, part_images: int) -> None:
        self.path = root
        self.notes = state.notes
        """What was found damaged or different on resuming, for people."""
        self.done = state.done
        """The images that are complete: `image_id in writer.done`."""
        self.counts = state.counts
        """How many images are complete, validated and skipped by now, those of earlier sittings included."""
        self._next_number = state.next_number
        self._part_images = part_images
        self._waiting = _Waiting()
        self._mark = ""

    def begin(self, mark: str) -> None:
        """Drop the images that were derived from something else than `mark` stands for; new ones are written under it.

        What models, oracles and people said later has parts of its own and stays.
        """
        self._mark = mark
        self.counts.update(dict.fromkeys(self.counts, 0))
        self.done.clear()
        for number in parts.numbers(self.path):
            part = parts.read_part(self.path, number)
            if "trials" not in part.tables:
                continue
            if part.mark != mark:
                with writing(self.path):
                    remove(self.path / RESULTS)
                    parts.manifest_path(self.path, number).unlink()
                for table in part.tables:
                    remove(parts.table_path(self.path, table, number))
                continue
            for name in self.counts:
                self.counts[name] += getattr(part, name)
            for image_id in parts.image_ids(self.path, number):
                self.done.add(image_id)

    def keep(self, png: bytes) -> str:
        """Keep a picture of the image that is added next, and answer its name relative to the run directory."""
        name = parts.picture_name(hashlib.sha256(png).hexdigest())
        waiting = self._waiting
        if name not in waiting.new and not (self.path / name).exists():
            with writing(self.path):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                write_temporary(self.path / name, png)
            waiting.new.add(name)
        waiting.loose[name] = len(png)
        return name

    def add(
        self,
        trials: Sequence[Trial],
        predictions: Sequence[Prediction],
        verdicts: Sequence[Verdict],
        pictures: Mapping[str, bytes] | None = None,
    ) -> None:
        """Take in all there is of one source image. `pictures` are the made ones by trial id, unless kept already."""
        pictures = pictures or {}
        image_id = _one_image(trials, predictions, verdicts, pictures)
        if image_id in self.done:
            raise BadData(f"image id {image_id!r} occurs twice; every image of a data set needs an id of its own")
        names = {trial_id: self.keep(png) for trial_id, png in pictures.items()}
        kept = [self._described(trial, names.get(trial.trial_id, trial.image)) for trial in trials]
        waiting = self._waiting
        for table, records in (("trials", kept), ("predictions", predictions), ("verdicts", verdicts)):
            waiting.tables[table].extend(records)
        waiting.pictures.update(waiting.loose)
        waiting.loose.clear()
        self.done.add(image_id)
        for counts in (self.counts, waiting.counts):
            _count(counts, trials)
        if waiting.counts["images"] >= self._part_images:
            self.commit()

    def commit(self) -> None:
        """Commit the images taken in since the last part. After a failure it may be called again."""
        waiting, number = self._waiting, self._next_number
        if not waiting.counts["images"]:
            return
        with writing(self.path):
            # Side by side, because the disk serves many such requests in about the time of one.
            with ThreadPoolExecutor(_SETTLERS) as settlers:
                list(settlers.map(_finish_picture, [self.path / name for name in waiting.new & waiting.pictures.keys()]))
            tables = write_tables(self.path, number, waiting.tables)
            remove(self.path / RESULTS)  # it does not know of these images
            parts.commit(self.path, parts.Part(number, tables, waiting.pictures, **waiting.counts, mark=self._mark))
        self._next_number += 1
        self._waiting = _Waiting(loose=waiting.loose, new=waiting.new - waiting.pictures.keys())

    def finish(self, results: Mapping[str, Any]) -> None:
        """Commit what is left and write `results.json`."""
        self.commit()
        with writing(self.path):
            write_whole(self.path / RESULTS, canonical(results))

    def salvage(self) -> None:
        """After a failure, commit what is complete or, if that fails too, leave no trace of it."""
        try:
            self.commit()
        except Exception:  # the failure that led here is the one to tell of
            remove(parts.manifest_path(self.path, self._next_number))
            for table in self._waiting.tables:
                remove(parts.table_path(self.path, table, self._next_number))
        for name in self._waiting.new:
            remove(self.path / name)
            remove(self.path / (name + TEMPORARY))
        self._waiting = _Waiting()

    def _described(self, trial: Trial, name: str) -> Trial:
        """The trial with its made picture's name, hash and size filled in."""
        if not name:
            return trial
        if name not in self._waiting.loose:
            raise ValueError(f"{trial.trial_id}: picture {name!r} was not kept with this image")
        return dataclasses.replace(trial, image=name, image_sha256=Path(name).stem, image_bytes=self._waiting.loose[name])


def write_tables(root: Path, number: int, tables: Mapping[str, Sequence[Any]]) -> dict[str, parts.Table]:
    """Put the tables of a part that have rows on the disk."""
    return {
        name: parts.write_table(root, name, number, data=to_parquet(name, records), rows=len(records))
        for name, records in tables.items()
        if records
    }


def _one_image(
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


def _finish_picture(picture: Path) -> None:
    temporary = picture.with_name(picture.name + TEMPORARY)
    if temporary.exists():  # a commit that is tried again finds it in place already
        settle(temporary)
        os.replace(temporary, picture)
    # The folder is not forced to disk: a hundred of them a part would cost more than the pictures, and a picture that a
    # power cut takes away is missed when the run is resumed.


def _count(counts: dict[str, int], trials: Sequence[Trial]) -> None:
    counts["images"] += 1
    counts["validated"] += any(trial.validated for trial in trials if trial.arm not in ("random", "source"))
    counts["skipped"] += any(trial.ending == "skipped" for trial in trials)
