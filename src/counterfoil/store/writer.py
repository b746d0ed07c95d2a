"""Writing a run directory: add what was made of each image, commit it in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadData
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.store import parts
from counterfoil.store.adoption import adopt, withdraw
from counterfoil.store.aside import bring_back, set_aside
from counterfoil.store.canonical import canonical
from counterfoil.store.done import Done
from counterfoil.store.files import remove, write_whole, writing
from counterfoil.store.recovery import RESULTS, Recovered
from counterfoil.store.schema import to_parquet
from counterfoil.store.staging import PartBuffer, Staged


class Writer:
    """Takes in what was made of each image. `store.write` makes one and holds the directory's lock meanwhile."""

    def __init__(self, root: Path, state: Recovered, *, part_images: int, packed: bool = False) -> None:
        self.path = root
        self.packed = packed
        """Whether pictures go into packs, one a part, instead of files of their own."""
        self.part_images = part_images
        """Images in one part: what a kill can lose at most of those that were added."""
        self.notes = state.notes
        """What was found damaged or different on resuming, for people."""
        self.done = state.done
        """The images that are complete: `image_id in writer.done`."""
        self.counts = state.counts
        """How many images are complete, validated and skipped by now, those of earlier sittings included."""
        self._next_number = state.next_number
        self._mark = ""
        self._waiting = self._buffer()
        self._staged: Staged | None = None  # what is being committed, so that it can be tried again

    def begin(self, mark: str) -> None:
        """Drop the images that were derived from something else than `mark` stands for; new ones are written under it.

        What models, oracles and people said later is set aside until `complete`, as pictures may be others then.
        """
        self._mark = mark
        self.counts.update(dict.fromkeys(self.counts, 0))
        self.done = Done()
        made = [part for number in parts.numbers(self.path) if "trials" in (part := parts.read_part(self.path, number)).tables]
        if any(part.mark != mark for part in made):
            remove(self.path / RESULTS)
            set_aside(self.path)
        for part in made:
            number = part.number
            if part.mark != mark:
                with writing(self.path):
                    parts.manifest_path(self.path, number).unlink()
                for table in part.tables:
                    remove(parts.table_path(self.path, table, number))
                remove(parts.pack_path(self.path, number))
                continue
            for name in self.counts:
                self.counts[name] += getattr(part, name)
            self.done.add_keys(parts.image_keys(self.path, number))

    def keep(self, png: bytes) -> str:
        """Keep a picture of the image that is added next, and answer its name relative to the run directory."""
        return self._waiting.keep(png)

    def add(
        self,
        trials: Sequence[Trial],
        predictions: Sequence[Prediction],
        verdicts: Sequence[Verdict],
        pictures: Mapping[str, bytes] | None = None,
    ) -> None:
        """Take in all there is of one source image. `pictures` are the made ones by trial id, unless kept already."""
        if self._staged is not None:
            self.commit()  # what failed to be committed goes first
        before = dict(self._waiting.counts)
        if trials and trials[0].image_id in self.done:
            raise BadData(f"image id {trials[0].image_id!r} occurs twice; every image of a data set needs an id of its own")
        self.done.add(self._waiting.add(trials, predictions, verdicts, pictures))
        for name, number in self._waiting.counts.items():
            self.counts[name] += number - before[name]
        if self._waiting.counts["images"] >= self.part_images:
            self.commit()

    def adopt(self, staged: Staged) -> None:
        """Make a part that another process staged one of the run's; each of its images must be new."""
        for image_id in staged.image_ids:
            if image_id in self.done:
                raise BadData(f"image id {image_id!r} occurs twice; every image of a data set needs an id of its own")
        adopt(self.path, staged, self._next_number, mark=self._mark)
        self._next_number += 1
        for image_id in staged.image_ids:
            self.done.add(image_id)
        for name, number in staged.counts.items():
            self.counts[name] += number

    def commit(self) -> None:
        """Commit the images taken in since the last part. After a failure it may be called again."""
        if not self._waiting.counts["images"]:
            return
        self._staged = self._staged or self._waiting.stage()
        adopt(self.path, self._staged, self._next_number, mark=self._mark)
        self._next_number += 1
        committed, self._waiting, self._staged = self._waiting, self._buffer(), None
        committed.hand_over(self._waiting)

    def complete(self) -> Counter[tuple[str, str]]:
        """Commit what is left. What was said later of pictures that are the same as before is there again.

        Answers how many rows were dropped, because their pictures are others now or gone, by role and name.
        """
        self.commit()
        return bring_back(self.path)

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
            if self._staged is not None:
                withdraw(self.path, self._staged, self._next_number)
        self._waiting.discard()
        self._waiting, self._staged = self._buffer(), None

    def _buffer(self) -> PartBuffer:
        return PartBuffer(self.path, f"{self._next_number:06d}", packed=self.packed)


def write_tables(root: Path, number: int, tables: Mapping[str, Sequence[Any]]) -> dict[str, parts.Table]:
    """Put the tables of a part that have rows on the disk."""
    return {
        name: parts.write_table(root, name, number, data=to_parquet(name, records), rows=len(records))
        for name, records in tables.items()
        if records
    }
