"""Read a run directory, while or after it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.store import runfile
from counterfoil.store.chunks import CONTENTS, RESULTS, Chunk, Contents, Damaged, manifest_path, numbers, read_chunk
from counterfoil.store.files import read_as, size_of
from counterfoil.store.images import ImageFile, Images
from counterfoil.store.later import Appender, append_to
from counterfoil.store.tables import SCHEMAS, scan, to_records

_AGAIN = "repeat the run's command and its work is done again"


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in a directory; BadRun if there is none, or files of it are lost or damaged."""
    run = Run(Path(path))
    for chunk in run.chunks():
        for name, table in chunk.tables.items():
            if size_of(file := chunk.table_path(run.path, name)) != table.bytes:
                raise BadRun(f"{file}: damaged or missing; {_AGAIN}")
    return run


@dataclass(frozen=True)
class Trials:
    """The trials of a run, read again each time."""

    run: Run

    def __iter__(self) -> Iterator[Trial]:
        for batch in self.run.table("trials"):
            yield from to_records(Trial, batch)

    def to_arrow(self) -> pa.Table:
        """One row per trial, as an Arrow table."""
        return self.run.table("trials").read_all()

    def to_pandas(self) -> Any:
        """One row per trial, as a data frame of pandas."""
        return self.to_arrow().to_pandas()


class Run:
    """A run directory as plain records. Chunks committed after it was opened are seen too."""

    def __init__(self, path: Path) -> None:
        content = runfile.load(path)
        self.path = path
        self.spec: Mapping[str, Any] = content.spec
        self.classes: Sequence[str] = content.classes
        self.provenance: Mapping[str, Any] = content.provenance
        self.resumed: Sequence[Mapping[str, Any]] = content.resumed
        """Provenance of later commands, where it differed from the first."""
        self._images = Images(path)
        self._known: dict[int, Chunk] = {}  # manifests never change

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def protocol(self) -> str:
        """The name of the protocol that it was made by."""
        return str(self.spec.get("protocol", ""))

    @property
    def results(self) -> dict[str, Any] | None:
        """Content of `results.json`, or None while the run is not finished."""
        path = self.path / RESULTS
        try:
            return dict(read_as(dict[str, Any], path)) if path.exists() else None
        except ValueError as error:
            raise BadRun(f"{path}: damaged ({type(error).__name__}); repeat the run's command to write it again") from None

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of complete, accepted and skipped images."""
        held = self.chunks()
        return {name: sum(getattr(chunk, name) for chunk in held) for name in ("images", "accepted", "skipped")}

    def chunks(self) -> list[Chunk]:
        """The committed chunks, oldest first, those with later answers last; BadRun if any is lost."""
        contents = Contents.of(self.path)
        while True:
            try:
                held = self._chunks_present(contents)
            except BadRun:
                before, contents = contents, Contents.of(self.path)
                if contents == before:
                    raise
                self._known.clear()  # corrected trials have taken the place of those before
            else:
                return sorted(held, key=lambda chunk: "trials" not in chunk.tables)

    def _chunks_present(self, contents: Contents) -> list[Chunk]:
        there = numbers(self.path)
        if lost := contents.missing(there):
            raise BadRun(f"{self.path}: files are lost ({manifest_path(Path(), lost[0])}); {_AGAIN}")
        if not contents.chunks and (self.path / RESULTS).exists() and not (self.path / CONTENTS).exists():
            raise BadRun(f"{self.path}: files are lost ({CONTENTS}); {_AGAIN}")
        try:
            for number in there:
                self._known[number] = self._known.get(number) or read_chunk(self.path, number)
        except Damaged as damage:
            raise BadRun(f"{self.path}: {damage}; {_AGAIN}") from None
        return [self._known[number] for number in there if self._known[number].mark == contents.mark]

    @property
    def trials(self) -> Trials:
        """Trials in the order in which they were committed: iterate over them, or take them as a table."""
        return Trials(self)

    def predictions(self, model: str | None = None) -> Iterator[Prediction]:
        """Answers of models, or of one of them. Of two rows for the same image the later one holds."""
        for batch in self._batches("predictions", where=("model", model)):
            yield from to_records(Prediction, batch)

    def verdicts(self, oracle: str | None = None) -> Iterator[Verdict]:
        """Verdicts of oracles, or of one of them. Of two rows for the same image the later one holds."""
        for batch in self._batches("verdicts", where=("oracle", oracle)):
            yield from to_records(Verdict, batch)

    def table(self, name: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Rows of `trials`, `predictions` or `verdicts` as a stream of Arrow batches."""
        schema = SCHEMAS[name] if columns is None else pa.schema([SCHEMAS[name].field(column) for column in columns])
        found = (batch.select(schema.names) for batch in self._batches(name, columns=columns))
        return pa.RecordBatchReader.from_batches(schema, found)

    def picture(self, trial: Trial, which: Picture = "made") -> ImageFile:
        """One of a trial's images, by default the one that was kept."""
        name = trial.shows(which)
        if not name:
            raise BadRun(f"{trial.trial_id}: has no {which} image ({trial.ending}); ask for accepted trials only")
        try:
            return self._images.at(name)
        except BadRun as error:
            raise BadRun(f"{trial.trial_id}: its {error}") from None

    def append(self, *, predictions: Sequence[Prediction] = (), verdicts: Sequence[Verdict] = ()) -> None:
        """Add answers of another model or oracle, as a chunk of its own."""
        with self.appending() as rows:
            rows.add(predictions=predictions, verdicts=verdicts)

    def appending(self, *, chunk_rows: int = 4096) -> AbstractContextManager[Appender]:
        """Add many such rows, a few at a time: `with run.appending() as rows: rows.add(predictions=…)`."""
        return append_to(self.path, chunk_rows=chunk_rows)

    def _batches(
        self, table: str, *, columns: Sequence[str] | None = None, where: tuple[str, str | None] = ("", None)
    ) -> Iterator[pa.RecordBatch]:
        column, wanted = where
        for chunk in self.chunks():
            if table in chunk.tables:
                for batch in scan(chunk.table_path(self.path, table), table, columns=columns):
                    yield batch if wanted is None else batch.filter(pc.equal(batch.column(column), wanted))
