"""The runs under the served folder: their folders, how far each is, their pages. Names become folders here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from counterfoil import protocols
from counterfoil.core.errors import BadRun, CounterfoilError
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.protocols.reading import Run, open_run, results_of
from counterfoil.store import ImageFile, Images, runfile
from counterfoil.store.chunks import RESULTS, Chunk, Contents, Damaged, manifest_path, numbers, read_chunk
from counterfoil.store.files import is_locked
from counterfoil.web.access import Db, Owner
from counterfoil.web.database import Review
from counterfoil.web.pages import page
from counterfoil.web.tally import oracle_name, summarise

DEPTH = 6  # folders below the served one in which runs are looked for
SHOWN = 12  # numbers of a run

routes = APIRouter()


class NotHere(CounterfoilError):
    """There is nothing of that name under the served folder."""


@dataclass(frozen=True)
class Catalogue:
    """The runs under `root`, or those of them that are named in `only`."""

    root: Path
    only: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The runs' names: their paths under the folder. Links are not followed."""
        found = self.only or tuple(self._walk(self.root, "", DEPTH))
        return sorted(found, key=str.casefold)

    def folder(self, name: str) -> Path:
        """The folder of a run; NotHere if there is none, or if the name leads elsewhere."""
        path = inside(self.root, name)
        if path is None or (self.only and name not in self.only) or not (path / runfile.NAME).exists():
            raise NotHere(f"no run named {name!r} here; the first page lists all there are")
        return path

    def open(self, name: str) -> Run:
        """The run of that name; BadRun says what is wrong with it."""
        with blaming(name):
            return open_run(self.folder(name))

    def describe(self, name: str) -> RunRow:
        """The row of a run in lists; a run that cannot be read says why."""
        try:
            with blaming(name):
                return _describe(name, Run(self.folder(name)))
        except BadRun as error:
            return RunRow(name, problem=self.without_root(error))

    def without_root(self, error: Exception) -> str:
        """An error's line without the path of the served folder, which is private."""
        return str(error).replace(f"{self.root}{os.sep}", "").replace(str(self.root), ".")

    def _walk(self, folder: Path, prefix: str, depth: int) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                folders = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in folders:
            if name.startswith(".") or not _is_utf8(name):  # other bytes have no place in an address
                continue
            if (folder / name / runfile.NAME).exists():
                yield prefix + name
            elif depth:
                yield from self._walk(folder / name, f"{prefix}{name}/", depth - 1)


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn any error in reading a run, whose files may come from elsewhere, into a line about the run."""
    try:
        yield
    except (CounterfoilError, SQLAlchemyError):
        raise
    except Exception as error:
        raise BadRun(f"{name}: damaged ({type(error).__name__}); restore it from where it came from") from error


def catalogue_of(request: Request) -> Catalogue:
    """The runs of the server that a request came to."""
    found: Catalogue = request.app.state.catalogue
    return found


Runs = Annotated[Catalogue, Depends(catalogue_of)]


def inside(root: Path, name: str) -> Path | None:
    """The file or folder called `name` under `root`; None if there is none, or if the name or a link on the way leads out."""
    steps = name.split("/")
    if not name or "\0" in name or "\\" in name or any(step in ("", ".", "..") or step.startswith(".") for step in steps):
        return None
    try:
        path = root.joinpath(*steps)
        path.lstat()
        return path if path.resolve().is_relative_to(root.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # missing, too long, not encodable, links in a circle
        return None


def image_file(run: Path, file: str) -> ImageFile:
    """An image of a run directory, or BadRun if it is missing or not in it."""
    leads_out = (run / file).is_symlink() and inside(run, file) is None
    found = _images(run).at(file)
    if leads_out or not found.is_file():
        raise BadRun(f"{file}: this image is missing from the run directory")
    return found


@lru_cache(maxsize=16)
def _images(run: Path) -> Images:
    return Images(run)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class RunRow:
    """A run of the folder, as lists show it."""

    name: str
    problem: str = ""  # why it cannot be read
    protocol: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)  # names by role
    state: str = ""
    images: int = 0
    numbers: Mapping[str, Estimate] = field(default_factory=dict)
    headlines: tuple[str, ...] = ()  # the numbers that the list shows


def _describe(name: str, run: Run) -> RunRow:
    found = progress(run.path)
    roles = ("model", "data", "generator", "painter", "oracle")
    named = {role: part_name(run.spec.get(role)) for role in roles}
    for role, several in (("model", "models"), ("surrogates", "surrogates")):
        named[role] = named.get(role) or ", ".join(map(part_name, run.spec.get(several) or ()))
    protocol = protocols.of(run)
    numbers = estimates(run, run.results or {})
    headlines = tuple(each for each in protocol.compared if each in numbers)
    return RunRow(name, "", protocol.name, named, found.state, found.images, numbers, headlines)


def estimates(run: Run, results: Mapping[str, Any]) -> dict[str, Estimate]:
    """The first estimates of a run's results, in the order of its protocol's measures."""
    order = {name: place for place, name in enumerate(protocols.of(run).measures)}
    found = [(name, entry) for name, entry in results.items() if _is_estimate(entry)]
    found.sort(key=lambda pair: order.get(pair[0], len(order)))
    return {name: Estimate.from_dict({"low": None, "high": None, **entry}) for name, entry in found[:SHOWN]}


def _is_estimate(entry: Any) -> bool:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("n"), int):
        return False
    return "value" in entry and all(isinstance(entry.get(name), int | float | None) for name in ("value", "low", "high"))


State = Literal["finished", "under way", "stopped", "being added to"]

WORDS: dict[State, str] = {
    "finished": "finished",
    "under way": "under way",
    "stopped": "stopped; the same command resumes it",
    "being added to": "finished; a model or oracle is being asked about its images",
}


@dataclass(frozen=True)
class RunProgress:
    """A run's state and counts, read from its directory without touching its lock."""

    state: State
    images: int  # complete by now
    accepted: int
    skipped: int
    expected: int | None  # images there will be
    per_second: float | None  # None when there are too few chunks to tell
    stages: Mapping[str, int]  # of protocols that go by stages: results so far, oldest first

    @property
    def share(self) -> float | None:
        """From 0 to 1."""
        if self.state in ("finished", "being added to"):
            return 1.0
        return min(self.images / self.expected, 1.0) if self.expected else None

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far."""
        if self.state != "under way" or not self.expected or not self.per_second:
            return None
        return max(self.expected - self.images, 0) / self.per_second


def progress(path: Path) -> RunProgress:
    """Progress of the run in `path`; BadRun if it cannot be read."""
    total = runfile.load(path).provenance.get("images")
    mark = Contents.of(path).mark
    read = [found for number in numbers(path) if (found := _chunk(path, number)) is not None and found[0].mark == mark]
    images, accepted, skipped = (sum(getattr(chunk, name) for chunk, _ in read) for name in ("images", "accepted", "skipped"))
    written = [(when, chunk.images) for chunk, when in read if chunk.images]
    finished, held = (path / RESULTS).exists(), is_locked(path)
    state: State = ("being added to" if held else "finished") if finished else "under way" if held else "stopped"
    expected = total if isinstance(total, int) else None
    return RunProgress(state, images, accepted, skipped, expected, _speed(written), _stages(path / "stages"))


_chunks: dict[Path, tuple[int, Chunk, float]] = {}


def _chunk(path: Path, number: int) -> tuple[Chunk, float] | None:
    """A chunk and when it was written. Manifests never change, so one that was read is not read again."""
    manifest = manifest_path(path, number)
    try:
        status = manifest.stat()
        known = _chunks.get(manifest)
        if known is None or known[0] != status.st_mtime_ns:
            if len(_chunks) > 100_000:
                _chunks.clear()
            known = _chunks[manifest] = (status.st_mtime_ns, read_chunk(path, number), status.st_mtime)
        return known[1], known[2]
    except (OSError, Damaged):
        return None


def _stages(folder: Path) -> dict[str, int]:
    """Count the results of each stage, those of the stage in progress included, in the order they were begun."""
    found: dict[str, tuple[int, int]] = {}
    for path in (*folder.glob("*.jsonl"), *folder.glob("*.parts/*.jsonl")):
        name = path.parent.stem if path.parent.suffix == ".parts" else path.stem
        try:
            begun, lines = path.stat().st_mtime_ns, path.read_bytes().count(b"\n") if path.is_file() else 0
        except OSError:  # merged meanwhile
            continue
        first, so_far = found.get(name, (begun, 0))
        found[name] = (min(first, begun), so_far + lines)
    return {name: lines for name, (_, lines) in sorted(found.items(), key=lambda item: item[1][0])}


def _speed(written: list[tuple[float, int]]) -> float | None:
    """Images per second since the first chunk, pauses included."""
    if len(written) < 2 or written[-1][0] <= written[0][0]:
        return None
    return sum(images for _, images in written[1:]) / (written[-1][0] - written[0][0])


@routes.get("/", include_in_schema=False)
def list_runs(request: Request, runs: Runs, visitor: Owner) -> Response:
    """Every run of the folder, those that cannot be read included."""
    rows = [runs.describe(name) for name in runs.names()]
    columns = list(dict.fromkeys(name for row in rows for name in row.headlines))
    return page(request, "runs.html", visitor, runs=rows, columns=columns, words=WORDS)


@routes.get("/runs/{name:path}", include_in_schema=False)
def one_run(request: Request, name: str, runs: Runs, database: Db, visitor: Owner) -> Response:
    """One run: how far it is, its numbers, its reviews."""
    folder, row = runs.folder(name), runs.describe(name)
    if row.problem:
        return page(request, "message.html", visitor, status=422, title="This run cannot be read", sentence=row.problem)
    with database.reading() as db:
        found = db.scalars(select(Review).where(Review.run == name).order_by(Review.id.desc())).all()
        reviews = [summarise(db, review) for review in found]
    people = _by_people(runs, row) if any(review.published for review in reviews) else None
    shown: dict[str, Any] = {"progress": progress(folder), "words": WORDS, "classes": len(Run(folder).classes)}
    return page(request, "run.html", visitor, run=row, reviews=reviews, people=people, **shown)


@routes.get("/progress/{name:path}")
def run_progress(name: str, runs: Runs, _: Owner) -> JSONResponse:
    """Progress of a run; ask again for as long as it is under way."""
    with blaming(name):
        found = progress(runs.folder(name))
    return JSONResponse({**asdict(found), "share": found.share, "seconds_left": found.seconds_left})


def _by_people(runs: Catalogue, row: RunRow) -> list[tuple[str, Any, Any]] | str:
    """The run's numbers according to its own oracle and according to people, or why there are none."""
    try:
        run = runs.open(row.name)
        people = estimates(run, results_of(run, oracle=oracle_name(run)))
    except CounterfoilError as error:
        return runs.without_root(error)
    return [(name, row.numbers.get(name), found) for name, found in people.items()]
