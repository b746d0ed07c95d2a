"""Whether scheduler, store and memory keep up with very many images, and what such a run would take.

    python -m bench.scale [--images 1000000] [--side 8] [--workers 2] [--out FOLDER] [--keep NAME]
    python -m bench.scale --scan FOLDER [--images 1000000] [--keep NAME]
    python -m bench.scale --plan [--seconds-per-image X] [--price P] [--keep NAME]

The first way runs the real driver, leases, Ray actors and store over made-up images: a worker does not climb, it makes
up two arms with four pictures for every image as quickly as it can. It prints finished images a second, memory on the way, and
how long it takes to open the run again. Pictures are tiny unless `--side` says otherwise; with 192 they are about as large as
PNG files of photographs at 256 pixels. The second way only opens a run again that the first has left with `--out`. The third
works out time, price and room of real runs from what `bench/results` holds; the room is kept as NAME_store.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from bench.made_up import SIDE, Images, outcome
from bench.plan import plan, room
from bench.results import add_keep, command, keep

from counterfoil import store
from counterfoil.core.spec import FmrSpec
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import Outcome, Progress, left
from counterfoil.protocols.ray.crew import Crew, Finished, Order, Report
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.ray.fmr import make
from counterfoil.protocols.ray.ray import RayPool
from counterfoil.store import layout
from counterfoil.store.chunks import ChunkBuilder

ROOM = 4096  # images a worker holds at most: it is through with them in a second
HELD = 2**28  # bytes of pictures that it holds at most
SPEC = FmrSpec.model_validate({"model": "made:up", "data": "made:up", "generator": "made:up", "oracle": "made:up"})


class MadeUpWorker:
    """Like the worker of the FMR protocol, without an engine."""

    def __init__(self, out: Path, *, side: int, chunk_images: int, packed: bool) -> None:
        self._out, self._side, self._chunk_images, self._packed = out, side, chunk_images, packed
        self._pending: dict[str, Outcome] = {}
        self._buffer: ChunkBuilder | None = None

    def begin(self, *, check: bool = True) -> None:
        """There is nothing to build."""

    def turn(self, order: Order[Sample]) -> Report:
        """All that was given is finished at once."""
        for key in order.drop:
            self._pending.pop(key, None)
        for key in order.hand_in:
            if self._buffer is None:
                self._buffer = ChunkBuilder(self._out, uuid.uuid4().hex, packed=self._packed)
            self._pending.pop(key).put(self._buffer)
        staged = None
        if self._buffer is not None and (self._buffer.counts["images"] >= self._chunk_images or order.flush):
            staged, self._buffer = self._buffer.close(), None
        made = [outcome(sample, self._side) for sample in order.give]
        self._pending.update((each.image_id, each) for each in made)
        if not made and staged is None:
            time.sleep(0.02)
        return Report([Finished(each.image_id, validated=each.validated) for each in made], staged)


def simulate(images: int, workers: int, out: Path, *, side: int) -> list[dict[str, Any]]:
    """The run, then opening it again; rows for people."""
    data = Images(images)
    laid = layout(images, at_least=64)
    memory: list[tuple[int, float, float]] = []  # images done, MiB of the driver and of all workers
    driver = psutil.Process()

    def watch(progress: Progress) -> None:
        if not memory or progress.done - memory[-1][0] >= images / 20 or progress.done == images:
            held = sum(each.memory_info().rss for each in _workers(driver))
            memory.append((progress.done, driver.memory_info().rss / 2**20, held / 2**20))
            if sys.stderr.isatty():
                print(f"\r{progress.done:,}", end="", file=sys.stderr)

    with RayPool(Execution("ray", workers), device="cpu") as pool:
        pool.employ(MadeUpWorker, out.resolve(), side=side, **laid)
        crew = Crew(pool, workers)
        crew.start()
        with store.write(out, spec=SPEC.model_dump(mode="json"), classes=data.classes, provenance={}, **laid) as writer:
            began, used = time.perf_counter(), (_processor([driver]), _processor(_workers(driver)))
            most = max(1, min(ROOM, HELD // (4 * 3 * side * side)))
            make(crew, SPEC, data, writer, room=most, watch=watch, tell=print)
            took = time.perf_counter() - began
            used = (_processor([driver]) - used[0], _processor(_workers(driver)) - used[1])
    quarter = [row for row in memory if row[0] >= images / 4]
    size = sum(path.stat().st_size for path in _files(out))
    return [
        {"what": "images", "value": images},
        {"what": "records (trials, predictions, verdicts)", "value": images * 10},
        {"what": "side of the pictures", "value": side},
        {"what": "workers", "value": workers},
        {"what": "finished images a second through the store", "value": round(images / took)},
        {"what": "MB a second onto the disk", "value": round(size / took / 1e6, 1)},
        {"what": "seconds", "value": round(took, 1)},
        {"what": "of a processor, µs an image, by the driver", "value": round(1e6 * used[0] / images)},
        {"what": "of a processor, µs an image, by the worker", "value": round(1e6 * used[1] / images)},
        {"what": "MiB of the driver after a quarter", "value": round(quarter[0][1])},
        {"what": "MiB of the driver at the end", "value": round(memory[-1][1])},
        {"what": "MiB of the workers after a quarter", "value": round(quarter[0][2])},
        {"what": "MiB of the workers at the end", "value": round(memory[-1][2])},
        {"what": "bytes on the disk an image", "value": round(size / images)},
        *scan(images, out),
    ]


def scan(images: int, out: Path) -> list[dict[str, Any]]:
    """Opening a finished run again and seeing that nothing is left to do; rows for people."""
    data, laid = Images(images), layout(images, at_least=64)
    began = time.perf_counter()
    with store.write(out, spec=SPEC.model_dump(mode="json"), classes=data.classes, provenance={}, **laid) as writer:
        opened = time.perf_counter() - began
        if next(left(writer, data), None) is not None or writer.counts["images"] != images:
            sys.exit(f"{out}: {writer.counts['images']} of {images} images are there")
        listed = time.perf_counter() - began
    return [
        {"what": "parts", "value": len(store.open_run(out).chunks())},
        {"what": "seconds to open it again, every table hashed", "value": round(opened, 1)},
        {"what": "seconds to list what is left, opening included", "value": round(listed, 1)},
    ]


def _workers(driver: psutil.Process) -> list[psutil.Process]:
    """The processes that make images up."""
    found = []
    for child in driver.children(recursive=True):
        with suppress(psutil.Error):
            found += [child] if MadeUpWorker.__name__ in " ".join(child.cmdline()) else []
    return found


def _processor(processes: list[psutil.Process]) -> float:
    """Seconds of a processor that they have used so far."""
    return sum(each.cpu_times().user + each.cpu_times().system for each in processes)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the pictures, at least {SIDE}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="where the run goes, and stays; by default a folder that is removed")
    parser.add_argument("--scan", type=Path, metavar="FOLDER", help="only open the run that is there again")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--seconds-per-image", type=float)
    parser.add_argument("--price", type=float, help="of a GPU and hour")
    add_keep(parser)
    given = parser.parse_args()
    if given.side < SIDE:
        parser.error(f"--side must be at least {SIDE}, got {given.side}")
    if given.plan:
        told(*plan(given.seconds_per_image, given.price), name=given.keep)
        told(*room(), name=f"{given.keep}_store" if given.keep else None)
    elif given.scan:
        told(scan(given.images, given.scan), f"A run over {given.images:,} made-up images, opened again.", name=given.keep)
    else:
        folder = given.out or Path(tempfile.mkdtemp(prefix="scale-")) / "run"
        try:
            rows = simulate(given.images, given.workers, folder, side=given.side)
        finally:
            if given.out is None:
                shutil.rmtree(folder.parent, ignore_errors=True)
        pictures = f"four pictures of {given.side} × {given.side}"
        about = f"The real driver, leases, Ray actors and store over made-up images of two arms and {pictures}."
        told(rows, about, name=given.keep)


def told(rows: list[dict[str, Any]], about: str, *, name: str | None) -> None:
    """Print the rows, and keep them under a name if there is one."""
    print(about)
    for row in rows:
        print("  ".join(f"{key} {value}" if key != "what" else f"{value:<52}" for key, value in row.items()))
    if name:
        keep(name, rows, command=command("bench.scale"), about=about)


if __name__ == "__main__":
    main()
