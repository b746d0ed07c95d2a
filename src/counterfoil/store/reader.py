"""Reading a run directory, a batch at a time, while or after it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.store import parts, runfile
from counterfoil.store.appender import Appender, append_to
from counterfoil.store.pictures import PictureFile, Pictures
from counterfoil.store.recovery import RESULTS
from counterfoil.store.schema import SCHEMAS, completed, to_records


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run kept in a directory; BadRun if there is none or a part of it is damaged."""
    run = Run(Path(path))
    for part in run.parts():
        for name, table in part.tables.items():
            file = parts.table_path(run.path, name, part.number)
            if not file.is_file() or file.stat().st_size != table.bytes:
                raise BadRun(f"{file}: damaged or missing; repeat the command that wrote it and the part is redone")
    return run


class Run:
    """A run directory as plain records. Parts committed after it was opened are seen too."""

    def __init__(self, path: Path) -> None:
        content = runfile.load(path)
        self.path = path
        self.spec: Mapping[str, Any] = content.spec
        self.classes: Sequence[str] = content.classes
        self.provenance: Mapping[str, Any] = content.provenance
        self._pictures = Pictures(path)
        self.resumed: Sequence[Mapping[str, Any]] = content.resumed
        """Provenance of later sittings, where it differed from the first."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def results(self) -> dict[str, Any] | None:
        """The content of `results.json`, or None while the run is not finished."""
        path = self.path / RESULTS
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            return content
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadRun(f"{path}: damaged ({type(error).__name__}); repeat the run's command to write it again") from None

    @property
    def counts(self) -> dict[str, int]:
        """How many images are complete, validated and skipped."""
        held = self.parts()
        return {name: sum(getattr(part, name) for part in held) for name in ("images", "validated", "skipped")}

    def parts(self) -> list[parts.Part]:
        """The committed parts, oldest first."""
        try:
            return [parts.read_part(self.path, number) for number in parts.numbers(self.path)]
        except parts.Damaged as damage:
            raise BadRun(f"{self.path}: {damage}; repeat the command that wrote it and the part is redone") from None

    @property
    def trials(self) -> Iterator[Trial]:
        """The trials, in the order they were committed."""
        for batch in self._batches("trials"):
            yield from to_records(Trial, batch)

    def predictions(self, model: str | None = None) -> Iterator[Prediction]:
        """What models said, or one of them. Of two rows for the same picture the later one holds."""
        for batch in self._batches("predictions", where=("model", model)):
            yield from to_records(Prediction, batch)

    def verdicts(self, oracle: str | None = None) -> Iterator[Verdict]:
        """What oracles said, or one of them. Of two rows for the same picture the later one holds."""
        for batch in self._batches("verdicts", where=("oracle", oracle)):
            yield from to_records(Verdict, batch)

    def table(self, name: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows of `trials`, `predictions` or `verdicts` as a stream of Arrow batches."""
        schema = SCHEMAS[name]
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        found = (completed(name, batch, schema) for batch in self._batches(name, columns=schema.names))
        return pa.RecordBatchReader.from_batches(schema, found)

    def picture(self, trial: Trial, which: Picture = "made") -> PictureFile:
        """One of a trial's pictures, by default the one that was kept: a path, or what reads like one."""
        name = trial.shows(which)
        if not name:
            raise BadRun(f"{trial.trial_id}: has no {which} picture ({trial.ending}); ask for validated trials only")
        try:
            return self._pictures.at(name)
        except BadRun as error:
            raise BadRun(f"{trial.trial_id}: its {error}") from None

    def append(self, *, predictions: Sequence[Prediction] = (), verdicts: Sequence[Verdict] = ()) -> None:
        """Add what another model or oracle says, as a part of its own."""
        with self.appending() as rows:
            rows.add(predictions=predictions, verdicts=verdicts)

    @contextmanager
    def appending(self, *, part_rows: int = 4096) -> Iterator[Appender]:
        """Add many such rows, a few at a time: `with run.appending() as rows: rows.add(predictions=…)`."""
        with append_to(self.path, part_rows=part_rows) as rows:
            yield rows

    def _batches(
        self, table: str, *, columns: Sequence[str] | None = None, where: tuple[str, str | None] = ("", None)
    ) -> Iterator[pa.RecordBatch]:
        column, wanted = where
        # What was said later comes last and so holds, also where the trials were written anew after it.
        for part in sorted(self.parts(), key=lambda each: "trials" not in each.tables):
            if table not in part.tables:
                continue
            for batch in parts.batches(self.path, table, part.number, columns=columns):
                yield batch if wanted is None else batch.filter(pc.equal(batch.column(column), wanted))
