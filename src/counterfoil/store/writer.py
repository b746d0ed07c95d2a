"""Create or resume a run directory, and add what was made of each image."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from counterfoil.core.errors import BadData, BadRun
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.store import runfile
from counterfoil.store.chunks import (
    CHUNKS,
    CONTENTS,
    RESULTS,
    Chunk,
    ChunkBuilder,
    Contents,
    Damaged,
    manifest_path,
    numbers,
    read_chunk,
)
from counterfoil.store.files import LOCK, TEMPORARY, canonical, hold, remove, write_whole, writing
from counterfoil.store.images import IMAGES, ZIP
from counterfoil.store.later import carry_over
from counterfoil.store.tables import SCHEMAS, scan

STAGES = "stages"
"""Folder of a staged protocol's tables; once something is in it, the run has begun."""

COMMIT_AFTER = 30.0  # seconds that a finished image waits for others at most before it is committed
PACKED_FROM = 10_000  # images from which on they go into zips: a few files for each would be more than disks like

_CHUNKS = 2_000  # a run has about this many at most, so that opening it stays quick
_LARGEST = 4_096
_READERS = 4


class ChunkLayout(TypedDict):
    """Options of `write` that follow from the size of a run."""

    chunk_images: int
    packed: bool


def layout(images: int, *, at_least: int) -> ChunkLayout:
    """Layout of a run over that many images, with chunks of at least the size that was asked for."""
    return {"chunk_images": max(at_least, min(images // _CHUNKS, _LARGEST)), "packed": images >= PACKED_FROM}


class Writer:
    """Adds what was made of each image. `store.write` makes one and holds the directory's lock meanwhile.

    Images are committed in chunks: when a chunk is full, and at the latest some seconds after its first image.
    """

    def __init__(self, root: Path, *, chunk_images: int, packed: bool = False) -> None:
        """Put the directory in order: drop damaged chunks, remove leftovers, list the complete images."""
        self.path, self.chunk_images, self.packed = root, chunk_images, packed
        self.notes: list[str] = []
        """Messages about damage, and about differences on resuming."""
        self.done: set[str] = set()
        """Ids of the complete images."""
        self.counts = {"images": 0, "accepted": 0, "skipped": 0}
        """Complete, accepted and skipped images by now, those of earlier commands included."""
        try:
            self._contents = Contents.of(root)
        except BadRun:
            self._contents = Contents()  # it is written again; a generation that was complete is seen again after its switch
        self._mark = self._contents.mark
        self._chunks: dict[int, Chunk] = {}
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._failure: Exception | None = None  # of a commit by the timer
        self._next = 0
        self._recover()
        self._waiting = self._builder()
        self._closed: Chunk | None = None  # what is being committed, so that it can be tried again

    def expect(self, images: int) -> None:
        """Lay the run out for that many images."""
        self.chunk_images, self.packed = layout(images, at_least=self.chunk_images).values()  # type: ignore[assignment]
        self._waiting = self._builder() if not len(self._waiting) else self._waiting

    def add(
        self,
        trials: Sequence[Trial],
        predictions: Sequence[Prediction] = (),
        verdicts: Sequence[Verdict] = (),
        images: Iterable[bytes] = (),
    ) -> None:
        """Add all there is of one source image. `images` are the PNG files that its trials name."""
        with self._lock:
            self._raise_failure()
            if self._closed is not None:
                self.flush()  # what could not be committed goes first
            if trials:
                self._check_new(trials[0].image_id)
            before = self._waiting.chunk
            self._waiting.add(trials, predictions, verdicts, images)
            self._note(self._waiting.chunk, before)
            if len(self._waiting) >= self.chunk_images or self._waiting.is_full:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(COMMIT_AFTER, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def commit(self, chunk: Chunk) -> None:
        """Commit a chunk that another process has closed; each of its images must be new."""
        with self._lock:
            for image_id in chunk.image_ids:
                self._check_new(image_id)
            self._commit(chunk)
            self._note(chunk, Chunk("", {}))

    def flush(self) -> None:
        """Commit the images added since the last chunk. After a failure it may be called again."""
        with self._lock:
            self._stop_timer()
            if not len(self._waiting):
                return
            self._closed = self._closed or self._waiting.close()
            self._commit(self._closed)
            for name in self._waiting.packed_files:
                remove(self.path / name)
            self._waiting, self._closed = self._builder(), None

    def generation(self, mark: str) -> None:
        """Write trials that were made from tables with this mark. Those of another mark stay readable until `switch`."""
        trials = {number: chunk for number, chunk in self._chunks.items() if "trials" in chunk.tables}
        if not any(chunk.mark == self._contents.mark for chunk in trials.values()):
            self._contents = self._contents.update(self.path, mark=mark)
        shown = {mark, self._contents.mark}
        cut_off = {number for number in self._chunks if number not in trials} if mark != self._contents.mark else set()
        self._drop(  # those of other tables, and what a switch that was killed had carried over
            [each for each in self._chunks.values() if each.mark not in shown or (each.mark == mark and each.number in cut_off)]
        )
        self._mark = mark
        self._count([chunk for chunk in trials.values() if chunk.mark == mark])

    def switch(self) -> Counter[tuple[str, str]]:
        """Let readers see the trials of this generation instead of those before.

        Later answers about images that are the same stay. Returns how many rows were dropped, by role and name.
        """
        self.flush()
        old = [chunk for chunk in self._chunks.values() if chunk.mark != self._mark]
        if self._mark == self._contents.mark:
            return Counter()
        carried, dropped = carry_over(self.path, old, [each for each in self._chunks.values() if each.mark == self._mark])
        for builder in carried:
            self._commit(builder.close())
        remove(self.path / RESULTS)  # they are those of the trials before
        self._drop(old, mark=self._mark)
        return dropped

    def finish(self, results: Mapping[str, Any]) -> None:
        """Commit what is left and write `results.json`."""
        self.close()
        with writing(self.path):
            write_whole(self.path / RESULTS, canonical(results))
        if self._contents.outdated:
            self._contents = self._contents.update(self.path, outdated=False)

    def close(self) -> None:
        """Commit what is left, and note which chunks the run is made of."""
        self.flush()
        self._raise_failure()
        self._contents = self._contents.update(self.path)

    def save_what_is_complete(self) -> None:
        """After a failure, commit what is complete or, if that fails too, leave no trace of it."""
        with self._lock:
            try:
                self.flush()
                self.close()
            except Exception:  # the failure that led here is the one to report
                with suppress(Exception):
                    self._waiting.discard(self._next)
            self._stop_timer()
            self._waiting, self._closed = self._builder(), None

    def _builder(self) -> ChunkBuilder:
        return ChunkBuilder(self.path, f"{self._next:06d}", packed=self.packed)

    def _note(self, chunk: Chunk, before: Chunk) -> None:
        """Count what a chunk has in addition to what it had before."""
        self.done.update(chunk.image_ids[len(before.image_ids) :])
        for name in self.counts:
            self.counts[name] += getattr(chunk, name) - getattr(before, name)

    def _check_new(self, image_id: str) -> None:
        if image_id in self.done:
            raise BadData(f"image id {image_id!r} occurs twice; every image of a data set needs an id of its own")

    def _commit(self, chunk: Chunk) -> None:
        if self._mark == self._contents.mark and chunk.images:
            remove(self.path / RESULTS)  # they do not include these images
        self._chunks[self._next] = chunk.commit(self.path, self._next, mark=self._mark)
        self._next += 1

    def _drop(self, chunks: Sequence[Chunk], **changes: Any) -> None:
        """Note what the run is made of from now on, then remove chunks."""
        self._contents = self._contents.update(self.path, without={chunk.number for chunk in chunks}, **changes)
        for chunk in chunks:
            chunk.drop(self.path)
            del self._chunks[chunk.number]

    def _flush_late(self) -> None:
        with self._lock:
            self._timer = None
            try:
                self.flush()
            except Exception as error:  # raised by the next call from the run's own thread
                self._failure = error

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _recover(self) -> None:
        there = numbers(self.path)
        with ThreadPoolExecutor(_READERS) as readers:  # hashing and reading wait for the disk
            examined = list(readers.map(self._examine, there))
        found = dict(zip(there, examined, strict=True))
        problems = {number: str(chunk.args[0]) for number, chunk in found.items() if isinstance(chunk, Damaged)}
        problems |= {number: f"{manifest_path(Path(), number)} is missing" for number in self._contents.missing(there)}
        if problems:
            remove(self.path / RESULTS)  # they include images that are now gone
        for number, problem in sorted(problems.items()):
            manifest_path(self.path, number).unlink(missing_ok=True)
            self.notes.append(f"chunk {number} dropped, its work is done again: {problem}")
        self._chunks = {number: chunk for number, chunk in found.items() if isinstance(chunk, Chunk)}
        self._next = 1 + max([*there, *problems, -1])
        if problems:
            self._contents = self._contents.update(self.path)
        self.remove_leftovers()
        self._count([chunk for chunk in self._chunks.values() if "trials" in chunk.tables and chunk.mark == self._mark])

    def _examine(self, number: int) -> Chunk | Damaged:
        try:
            chunk = read_chunk(self.path, number)
        except Damaged as damage:
            return damage
        damaged = chunk.find_damage(self.path)
        for path in damaged:  # a stage or another chunk may share an image: what is not there is made again
            remove(path)
        return Damaged(*(f"{path.relative_to(self.path)} {how}" for path, how in damaged.items())) if damaged else chunk

    def _count(self, held: Sequence[Chunk]) -> None:
        """Take the images of these chunks for the complete ones."""
        with ThreadPoolExecutor(_READERS) as readers:
            self.done = set().union(*readers.map(self._ids, held))
        self.counts = {name: sum(getattr(chunk, name) for chunk in held) for name in self.counts}

    def _ids(self, chunk: Chunk) -> set[str]:
        batches = scan(chunk.table_path(self.path, "trials"), "trials", columns=["image_id"])
        return {image_id for batch in batches for image_id in batch.column("image_id").to_pylist()}

    def remove_leftovers(self) -> None:
        """Remove what a killed writer had not committed. Images stay, as the same ones are made again."""
        owned = {path for chunk in self._chunks.values() for path in chunk.paths(self.path)}
        tables = [path for name in SCHEMAS for path in self.path.glob(f"{name}/*")]
        for path in {*tables, *self.path.glob(f"{IMAGES}/*{ZIP}")} - owned:
            remove(path)
        for place in ("", f"{CHUNKS}/", f"{IMAGES}/", f"{IMAGES}/*/"):
            for path in self.path.glob(f"{place}*{TEMPORARY}"):
                remove(path)


@contextmanager
def write(
    path: str | os.PathLike[str],
    spec: Mapping[str, Any],
    classes: Sequence[str],
    provenance: Mapping[str, Any],
    *,
    chunk_images: int = 64,
    packed: bool = False,
) -> Iterator[Writer]:
    """Create a run directory, or resume the one that is there.

    Leaving the block commits what is complete, also after an exception; if that is nothing, what this call created is
    removed again. `packed` puts the images of a chunk into one zip instead of a file for each.
    """
    root = Path(path)
    asked = runfile.describe_run(spec, classes, provenance)
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        with writing(root):
            _make_folder(root)
        with hold(root):
            fresh = not (root / runfile.NAME).exists()
            writer: Writer | None = None
            try:
                notes = [] if fresh else runfile.resume(root, runfile.load(root), asked)
                if fresh:
                    asked.save(root)
                with writing(root):
                    writer = Writer(root, chunk_images=chunk_images, packed=packed)
                writer.notes[:0] = notes
                yield writer
                writer.close()
            except BaseException:
                if writer is not None:
                    writer.save_what_is_complete()
                if fresh and not numbers(root) and not (root / STAGES).exists():
                    _clear(root)
                raise
    finally:
        for folder in made:  # only those of a run that never began are empty
            with suppress(OSError):
                folder.rmdir()


def _make_folder(root: Path) -> None:
    """Make sure the folder is there and may hold a run."""
    if root.exists() and not root.is_dir():
        raise BadRun(f"{root}: is a file, and a run needs a folder; choose another --out")
    root.mkdir(parents=True, exist_ok=True)
    names = set(os.listdir(root))
    # A writer killed in its first moments leaves a lock and perhaps an unfinished run.json: as good as empty.
    strange = {name for name in names if name != LOCK and not name.endswith(TEMPORARY)}
    if strange and runfile.NAME not in names:
        raise BadRun(f"{root}: not empty and not a run directory (it has {min(strange)}); choose another --out")


def _clear(root: Path) -> None:
    """Remove all that a run without a chunk has written; `run.json` goes last, as it marks the folder as ours."""
    for name in (CHUNKS, IMAGES, *SCHEMAS):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in (CONTENTS, runfile.NAME, LOCK):
        remove(root / name)
