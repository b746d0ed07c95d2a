"""Runs a stage: every item that has no result yet is worked on in batches, and each batch is written down at once."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from counterfoil.core.errors import BadData, BadRun
from counterfoil.store import files
from counterfoil.store.stages.blobs import Blobs
from counterfoil.store.stages.items import Item, Items, Made, key_of, line_of
from counterfoil.store.stages.table import Follows, Table, digest, open_table

FOLDER = "stages"
"""Where in a run directory the stages are."""

Result = Made | Sequence[Made]
Work = Callable[[Sequence[Item]], Sequence[Result]]


@dataclass(frozen=True)
class Progress:
    """How far a stage is."""

    stage: str
    done: int
    total: int | None
    validated: int  # results that go on
    skipped: int  # results that a check turned away


class StageReached(Exception):
    """The stage that the run was to stop after is done."""


class Spread(Protocol):
    """Has batches worked on elsewhere, by workers that run the same stages."""

    def batches(self, stage: str, items: Iterator[Item], *, batch: int) -> Iterator[tuple[list[Item], Sequence[Result]]]:
        """Every item with its result, some at a time, in any order."""
        ...

    def complete(self, stage: str) -> None:
        """The stage's table is on the disk."""
        ...


class Stages:
    """The stages of one run. The caller holds the run directory's lock."""

    def __init__(
        self,
        run: Path,
        *,
        batch: int = 16,
        workers: int = 1,
        until: str | None = None,
        spread: Spread | None = None,
        watch: Callable[[Progress], None] = lambda progress: None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.root = run / FOLDER
        self.blobs = Blobs(run)
        self._batch, self._workers, self._until, self._watch, self._tell = batch, workers, until, watch, tell
        self._spread = spread
        self._tables: list[Table] = []
        _sweep(self.root)

    def map(
        self,
        name: str,
        items: Items | Sequence[Item],
        work: Work,
        *,
        settings: Mapping[str, Any],
        blobs: Sequence[str] = (),
        batch: int | None = None,
        parallel: bool = False,
        follows: Follows = lambda row: {},
    ) -> Table:
        """The table of a stage, with a result for every item.

        `work` answers a batch of items with one result or several each, in their order. `settings` are what decides a result
        beside the item. `blobs` names values that are blobs, or lists of them: a result whose blob is gone is made again.
        `batch` is for work that costs nothing. `parallel` lets several batches be under way at once, for work that waits for
        somebody else. `follows` answers the values of a line that a person corrected which follow from its others.
        """
        table = open_table(self.root, name)
        if table.added and (strays := table.added - {item.id for item in items}):
            raise BadRun(f'{table.path}: a line was added to {min(strays)!r}, which is not there; correct its "of", or delete it')
        tally = _Tally(Progress(name, 0, items.total if isinstance(items, Items) else len(items), 0, 0), self._watch)

        def key(item: Item) -> str:
            return key_of(name, settings, item)

        left = self._left(items, table, key, blobs, tally)
        if self._spread is not None and batch is None:
            worked = self._spread.batches(name, left, batch=self._batch)
        else:
            worked = self._worked(left, work, batch or self._batch, parallel=parallel)
        for some, results in worked:
            pairs = zip(some, results, strict=True)
            lines = [table.renewed(key(item), item, _lines(name, key(item), item, result)) for item, result in pairs]
            table.commit([line for each in lines for line in each])
            tally.count(*([made.check for made in _several(result)] for result in results))
        table.merge(line for item in items for line in table.lines(key(item), item, follows))
        self._tables.append(table)
        if self._spread is not None:
            self._spread.complete(name)
        if corrected := sum(row.by_hand for item in items for row in table.found(key(item), item)):
            self._tell(f"{name}: {corrected} lines corrected by hand")
        if name == self._until:
            raise StageReached(name)
        return table

    def funnel(self) -> list[dict[str, Any]]:
        """What each stage so far let through and what its checks turned away, in their order."""
        entries = []
        for table in self._tables:
            kept, turned = table.counts()
            entries.append(
                {
                    "stage": table.name,
                    "in": kept + sum(turned.values()),
                    "kept": kept,
                    "turned_away": dict(sorted(turned.items())),
                }
            )
        return entries

    def mark(self) -> str:
        """A hash over all tables so far: the same for the same results."""
        content = hashlib.sha256()
        for table in self._tables:
            content.update(f"{table.name} {digest(table.path)}\n".encode())
        return content.hexdigest()[:20]

    def _left(
        self, items: Items | Sequence[Item], table: Table, key: Callable[[Item], str], blobs: Sequence[str], tally: _Tally
    ) -> Iterator[Item]:
        """The items that have no result yet, or one that has to be made again; the others are counted."""
        seen: set[int] = set()
        for item in items:
            short = files.key_of(item.id)
            if short in seen:
                raise BadData(f"{table.name}: {item.id!r} occurs twice; every item needs an id of its own")
            seen.add(short)
            own = key(item)
            rows = table.found(own, item) if table.has(own, item) else []
            if rows and not any((row.retry and not row.by_hand) or self._lacks(row.values, blobs) for row in rows):
                tally.count([row.check for row in rows])
            else:
                yield item

    def _lacks(self, values: Mapping[str, Any], blobs: Sequence[str]) -> bool:
        named = [values.get(name) for name in blobs]
        each = [one for some in named for one in (some if isinstance(some, list) else [some]) if one]
        return any(one not in self.blobs for one in each)

    def _worked(
        self, items: Iterator[Item], work: Work, batch: int, *, parallel: bool
    ) -> Iterator[tuple[list[Item], Sequence[Result]]]:
        """Batches with their results, in order; with several workers a few are under way at a time."""
        if not parallel or self._workers == 1:
            while some := list(islice(items, batch)):
                yield some, work(some)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="stage") as pool:
            under_way: deque[tuple[list[Item], Future[Sequence[Result]]]] = deque()
            try:
                while True:
                    while len(under_way) < 2 * self._workers and (some := list(islice(items, batch))):
                        under_way.append((some, pool.submit(work, some)))
                    if not under_way:
                        return
                    some, future = under_way.popleft()
                    yield some, future.result()
            finally:
                for _, future in under_way:
                    future.cancel()


class _Tally:
    """Counts how far a stage is, and tells whoever watches."""

    def __init__(self, start: Progress, watch: Callable[[Progress], None]) -> None:
        self._progress, self._watch = start, watch
        watch(start)

    def count(self, *results: Sequence[str]) -> None:
        """Count some items as done, each by the checks of its rows; an empty one lets a row through."""
        for checks in results:
            kept, so_far = sum(not check for check in checks), self._progress
            self._progress = replace(
                so_far,
                done=so_far.done + 1,
                validated=so_far.validated + kept,
                skipped=so_far.skipped + len(checks) - kept,
            )
        self._watch(self._progress)


def _lines(name: str, key: str, item: Item, result: Result) -> list[dict[str, Any]]:
    several = _several(result)
    if not several:
        raise ValueError(f"{name}: no result for {item.id}; say with turned_away why there is none")
    return [line_of(item, key, made) for made in several]


def _several(result: Result) -> Sequence[Made]:
    return [result] if isinstance(result, Made) else result


def _sweep(root: Path) -> None:
    """Remove what a writer that was killed had not finished."""
    for path in [
        *root.glob(f"*{files.TEMPORARY}"),
        *root.glob(f"*.parts/*{files.TEMPORARY}"),
        *root.glob(f"blobs/*/*{files.TEMPORARY}"),
        *root.parent.glob(f"images/*/*{files.TEMPORARY}"),
    ]:
        files.remove(path)
