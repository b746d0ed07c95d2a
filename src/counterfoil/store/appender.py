"""Adding to a run what another model or oracle says of its pictures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counterfoil.core.records import Prediction, Verdict
from counterfoil.store import aside, lock, parts
from counterfoil.store.files import remove, writing
from counterfoil.store.recovery import RESULTS
from counterfoil.store.writer import write_tables


class Appender:
    """Takes in rows and commits them in parts of their own. `Run.appending` makes one and holds the lock meanwhile."""

    def __init__(self, root: Path, *, part_rows: int, own: Collection[str] = ()) -> None:
        """`own` are the models and oracles that the run's results speak of."""
        self._root, self._part_rows, self._own = root, part_rows, own
        self.outdated = False
        """Whether results that were there had to go, as one of these has said something else."""
        self._tables: dict[str, list[Any]] = {"predictions": [], "verdicts": []}

    def add(self, *, predictions: Sequence[Prediction] = (), verdicts: Sequence[Verdict] = ()) -> None:
        """Take in some rows."""
        self._tables["predictions"].extend(predictions)
        self._tables["verdicts"].extend(verdicts)
        if sum(map(len, self._tables.values())) >= self._part_rows:
            self.commit()

    def commit(self) -> None:
        """Commit the rows taken in since the last part, or leave no trace of them."""
        if not any(self._tables.values()):
            return
        number = max([*parts.numbers(self._root), *aside.numbers(self._root)], default=-1) + 1
        try:
            with writing(self._root):
                tables = write_tables(self._root, number, self._tables)
                self._drop_results()
                parts.commit(self._root, parts.Part(number, tables))
        except BaseException:
            remove(parts.manifest_path(self._root, number))
            for table in self._tables:
                remove(parts.table_path(self._root, table, number))
            raise
        finally:
            self._tables = {"predictions": [], "verdicts": []}

    def _drop_results(self) -> None:
        said = {row.model for row in self._tables["predictions"]} | {row.oracle for row in self._tables["verdicts"]}
        results = self._root / RESULTS
        if results.exists() and not said.isdisjoint(self._own):
            self.outdated = True
            remove(results)


@contextmanager
def append_to(root: Path, *, part_rows: int, own: Collection[str] = ()) -> Iterator[Appender]:
    """Hold the run's lock and take in rows; what came before an exception is kept."""
    with lock.hold(root):
        appender = Appender(root, part_rows=part_rows, own=own)
        try:
            yield appender
        finally:
            appender.commit()
