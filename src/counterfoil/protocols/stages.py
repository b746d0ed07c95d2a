"""Stages of a protocol: each a resumable map from items to a table that people may correct."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, BadRun
from counterfoil.core.spec import StagesSpec
from counterfoil.parts import images
from counterfoil.protocols.base import Progress, Tell, Watch, require_complete, stop_at
from counterfoil.protocols.workspace import Workspace
from counterfoil.store import files
from counterfoil.store.stages import (
    FOLDER,
    Blobs,
    Item,
    Made,
    Row,
    StageTable,
    key_of,
    line_of,
    sweep,
    turned_away,
)  # fmt: skip

if TYPE_CHECKING:
    from counterfoil.protocols.ray import Crew

Result = Made | Sequence[Made]


class Tables:
    """The stages' tables of one run, by name, and the images and tensors they refer to."""

    def __init__(self, run: Path) -> None:
        self.root = run / FOLDER
        self.files = Blobs(run)
        self._complete: dict[str, StageTable] = {}

    def __getitem__(self, name: str) -> StageTable:
        """A complete table; one that a run has not is empty."""
        if name not in self._complete:
            self._complete[name] = StageTable(self.root, name)
        return self._complete[name]

    def image(self, name: str) -> Tensor:
        return images.read(self.files.read(name), name=name)

    def mark(self, names: Sequence[str]) -> str:
        """A hash over tables: the same for the same results."""
        content = hashlib.sha256()
        for name in names:
            content.update(f"{name} {files.sha256_of(self[name].path)}\n".encode())
        return content.hexdigest()[:20]

    def add(self, table: StageTable) -> None:
        self._complete[table.name] = table


class Stage(ABC):
    """One step of a staged protocol: items from earlier tables, and what is made of each."""

    name: str
    """Name of its table; a run can stop after it."""
    of: str = ""
    """The table whose rows are its items, one each, unless `items` says otherwise."""
    uses: Sequence[str] = ()
    """Parts that are on the device while it works, by their key in the workspace; they decide its results."""
    kept: ClassVar[Sequence[str]] = ()
    """Values that name files, or lists of files: a result whose file is gone is made again."""
    at_once: ClassVar[int | None] = None
    """Items at a time, for work that costs nothing and is not spread over workers."""
    parallel: ClassVar[bool] = False
    """True if several batches may be in progress, for work that waits for an endpoint."""

    def __init__(self, space: Workspace[Any], tables: Tables) -> None:
        self.space, self.tables = space, tables

    def items(self) -> Iterator[Item]:
        """Its items; iterated more than once."""
        return map(self.item, self.tables[self.of].passing())

    def item(self, row: Row) -> Item:
        """The item of a row of the table `of`."""
        raise NotImplementedError

    def count(self) -> int | None:
        """Number of items, if that is known beforehand."""
        return sum(1 for _ in self.tables[self.of].passing()) if self.of else None

    @abstractmethod
    def work(self, items: Sequence[Item]) -> Sequence[Result]:
        """One result or several for each item, in their order."""

    def decided_by(self) -> Mapping[str, Any]:
        """Inputs that decide a result in addition to the item and the parts it uses."""
        return {}

    def follows(self, row: Row) -> Mapping[str, Any]:
        """The values of a line that a person corrected which follow from its others."""
        return {}

    def check(self, table: StageTable) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse a complete table that the run cannot continue from."""

    def of_data(self) -> Mapping[str, Any]:
        """The part of that which only a process with the whole data set can say; workers have the head of it."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Everything that decides a result, the item aside."""
        return {**{key: self.space.settings(key) for key in self.uses}, **self.decided_by(), **self.of_data()}

    def images(self, items: Sequence[Item], name: str = "image") -> list[Tensor]:
        """The images that items are about, by the value that names them."""
        return [self.tables.image(str(item.about[name])) for item in items]

    def unreadable(self, problem: BadImage) -> Made:
        """The result for an image that cannot be read; with `strict`, the end of the run."""
        if self.space.spec.strict:
            raise stop_at(problem)
        return turned_away("unreadable", str(problem))

    def complete_if_strict(self, table: StageTable) -> None:
        """With `strict`, refuse a table of images in which one was left out earlier."""
        require_complete(self.space.spec, table.path.parent.parent, left_out=sum(not row.goes_on for row in table))


class Looks(Stage):
    """Answers of one tested model about every image; subclasses say which images."""

    shows = "image"
    """The value of an item that names its image."""

    def __init__(self, space: Workspace[Any], tables: Tables, at: int, name: str) -> None:
        super().__init__(space, tables)
        named, self.reader = space.readers[at]
        self.name, self.uses = name, (next(key for key, _, each in space.spec.parts() if each == named),)

    def decided_by(self) -> Mapping[str, Any]:
        return {"outputs": [list(each) for each in self.reader.outputs]}

    def work(self, items: Sequence[Item]) -> list[Made]:
        labels = [int(item.inputs["label"]) for item in items]
        return [Made(look) for look in self.space.in_batches(self.images(items, self.shows), self.reader.looks, labels)]


def run_stages(
    stages: Sequence[Stage],
    tables: Tables,
    layout: StagesSpec,
    *,
    until: str | None = None,
    spread: Crew | None = None,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
) -> bool:
    """Complete the stages' tables one after the other; False if it stopped after the stage `until`.

    The caller holds the run directory's lock.
    """
    sweep(tables.root)
    for stage in stages:
        table = _complete(stage, tables, layout, spread, watch, tell)
        stage.check(table)
        tables.add(table)
        if stage.name == until:
            return False
    return True


def _complete(stage: Stage, tables: Tables, layout: StagesSpec, spread: Crew | None, watch: Watch, tell: Tell) -> StageTable:
    """The table of a stage, with a result for every item."""
    table = StageTable(tables.root, stage.name)
    if table.added and (strays := table.added - {item.id for item in stage.items()}):
        raise BadRun(f'{table.path}: a line was added to {min(strays)!r}, which is not there; correct its "of", or delete it')
    progress = Progress(0, stage.count(), stage=stage.name)
    watch(progress)

    def tally(*results: Sequence[str]) -> None:
        """Count some items as done, each by the checks of its rows; an empty one lets a row through."""
        nonlocal progress
        for checks in results:
            kept = sum(not check for check in checks)
            progress = progress.more(validated=kept, skipped=len(checks) - kept)
        watch(progress)

    settings = stage.settings() if spread is None else {**spread.settings(stage.name), **stage.of_data()}
    key = partial(key_of, stage.name, settings)
    left = _missing(stage, tables, table, key, tally)
    here = spread is None or stage.at_once is not None
    with stage.space.place(*stage.uses) if here else nullcontext():
        worked = _process(stage, left, layout) if here else spread.batches(stage.name, left, batch=layout.batch)  # type: ignore[union-attr]
        for some, results in worked:
            pairs = list(zip(some, map(_several, results), strict=True))
            if empty := next((item.id for item, made in pairs if not made), None):
                raise ValueError(f"{stage.name}: no result for {empty}; say with turned_away why there is none")
            lines = [table.renew(key(item), item, [line_of(item, key(item), each) for each in made]) for item, made in pairs]
            table.commit([line for each in lines for line in each])
            tally(*([each.check for each in made] for _, made in pairs))
    table.merge(line for item in stage.items() for line in table.lines(key(item), item, stage.follows))
    if corrected := sum(row.by_hand for item in stage.items() for row in table.find(key(item), item)):
        tell(f"{stage.name}: {corrected} lines corrected by hand")
    return table


def _missing(
    stage: Stage, tables: Tables, table: StageTable, key: Callable[[Item], str], tally: Callable[..., None]
) -> Iterator[Item]:
    """The items that have no result yet, or one that has to be made again; the others are counted."""
    seen: set[int] = set()
    for item in stage.items():
        short = files.key_of(item.id)
        if short in seen:
            raise BadData(f"{table.name}: {item.id!r} occurs twice; every item needs an id of its own")
        seen.add(short)
        own = key(item)
        rows = list(table.find(own, item)) if table.has(own, item) else []
        if rows and not any((row.retry and not row.by_hand) or _lacks(row, stage.kept, tables.files) for row in rows):
            tally([row.check for row in rows])
        else:
            yield item


def _lacks(row: Row, kept: Sequence[str], held: Blobs) -> bool:
    """Tell whether a file that a row names is gone."""
    named = [row.values.get(name) for name in kept]
    return any(one not in held for some in named for one in (some if isinstance(some, list) else [some]) if one)


def _process(stage: Stage, items: Iterator[Item], layout: StagesSpec) -> Iterator[tuple[list[Item], Sequence[Result]]]:
    size = stage.at_once or layout.batch
    if not stage.parallel or layout.workers == 1:
        while some := list(islice(items, size)):
            yield some, stage.work(some)
        return
    with ThreadPoolExecutor(layout.workers, thread_name_prefix="stage") as pool:
        ahead: deque[tuple[list[Item], Future[Sequence[Result]]]] = deque()
        try:
            while True:
                while len(ahead) < 2 * layout.workers and (some := list(islice(items, size))):
                    ahead.append((some, pool.submit(stage.work, some)))
                if not ahead:
                    return
                some, future = ahead.popleft()
                yield some, future.result()
        finally:
            for _, future in ahead:
                future.cancel()


def _several(result: Result) -> Sequence[Made]:
    return [result] if isinstance(result, Made) else result
