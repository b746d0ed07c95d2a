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
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Estimate
from counterfoil.protocols.reading import Run, open_run, results_of
from counterfoil.store import ImageFile, Images, runfile
from counterfoil.store.chunks import RESULTS, manifest_path, numbers
from counterfoil.store.files import is_locked
from counterfoil.web.access import Db, Owner, page
from counterfoil.web.database import Review
from counterfoil.web.tally import oracle_name, summarise

DEPTH = 6  # folders below the served one in which runs are looked for
SHOWN = 20  # numbers of a run

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
        return sorted(self.only or self._walk(self.root, DEPTH), key=str.casefold)

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
                return _describe(name, self.folder(name))
        except BadRun as error:
            return RunRow(name, problem=self.without_root(error))

    def without_root(self, error: Exception) -> str:
        """An error's line without the path of the served folder, which is private."""
        return str(error).replace(f"{self.root}{os.sep}", "").replace(str(self.root), ".")

    def _walk(self, folder: Path, depth: int) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                folders = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for name in folders:
            if name.startswith(".") or name.encode(errors="ignore").decode() != name:  # other bytes have no place in an address
                continue
            if (folder / name / runfile.NAME).exists():
                yield (folder / name).relative_to(self.root).as_posix()
            elif depth:
                yield from self._walk(folder / name, depth - 1)


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
    if "\0" in name or "\\" in name or any(not step or step.startswith(".") for step in name.split("/")):
        return None
    try:
        path = root / name
        path.lstat()
        return path if path.resolve().is_relative_to(root.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # missing, too long, not encodable, links in a circle
        return None


def image_file(run: Path, file: str) -> ImageFile:
    """An image of a run directory, or BadRun if it is missing or not in it."""
    found = _images(run).at(file)
    if ((run / file).is_symlink() and inside(run, file) is None) or not found.is_file():
        raise BadRun(f"{file}: this image is missing from the run directory")
    return found


@lru_cache(maxsize=16)
def _images(run: Path) -> Images:
    return Images(run)


@lru_cache(maxsize=256)
def _read(path: Path, changed: int) -> Run:
    """A run whose manifests are read once; `changed` is when its description was written."""
    return Run(path)


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


def _describe(name: str, path: Path) -> RunRow:
    found, run = progress(path), Run(path)
    protocol, spec = protocols.of(run), run.spec
    named = {role: short_name(part_name(spec.get(role))) for role in ("model", "data", "generator", "painter", "oracle")}
    for role, several in (("model", "models"), ("surrogates", "surrogates")):
        named[role] = named.get(role) or ", ".join(short_name(part_name(each)) for each in spec.get(several) or ())
    shown = estimates(run, run.results or {})
    headlines = tuple(each for each in protocol.compared if each in shown)
    return RunRow(name, "", protocol.name, named, found.state, found.images, shown, headlines)


def estimates(run: Run, results: Mapping[str, Any]) -> dict[str, Estimate]:
    """The first estimates of a run's results, in the order of its protocol's measures."""
    order = {name: place for place, name in enumerate(protocols.of(run).measures)}
    found = sorted((name for name in results if _is_estimate(results[name])), key=lambda name: order.get(name, len(order)))
    return {name: Estimate.from_dict({"low": None, "high": None, **results[name]}) for name in found[:SHOWN]}


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
    run = _read(path, (path / runfile.NAME).stat().st_mtime_ns)
    finished, held = (path / RESULTS).exists(), is_locked(path)
    state: State = ("being added to" if held else "finished") if finished else "under way" if held else "stopped"
    total = run.provenance.get("images")
    speed = _speed(path, [chunk.images for chunk in run.chunks()]) if state == "under way" else None
    return RunProgress(
        state, **run.counts, expected=total if isinstance(total, int) else None, per_second=speed, stages=_stages(path)
    )


def _speed(path: Path, images: list[int]) -> float | None:
    """Images per second since the first chunk, pauses included; None where there are too few chunks to tell."""
    there = numbers(path)
    if len(images) < 2 or len(there) < 2:
        return None
    seconds = manifest_path(path, there[-1]).stat().st_mtime - manifest_path(path, there[0]).stat().st_mtime
    return sum(images[1:]) / seconds if seconds > 0 else None


def _stages(path: Path) -> dict[str, int]:
    """Count the results of each stage, those of the stage in progress included, in the order they were begun."""
    found: dict[str, tuple[int, int]] = {}
    for file in (*path.glob("stages/*.jsonl"), *path.glob("stages/*.parts/*.jsonl")):
        name = file.parent.stem if file.parent.suffix == ".parts" else file.stem
        try:
            begun, lines = file.stat().st_mtime_ns, file.read_bytes().count(b"\n") if file.is_file() else 0
        except OSError:  # merged meanwhile
            continue
        first, so_far = found.get(name, (begun, 0))
        found[name] = (min(first, begun), so_far + lines)
    return {name: lines for name, (_, lines) in sorted(found.items(), key=lambda item: item[1][0])}


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
