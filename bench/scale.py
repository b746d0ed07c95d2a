"""Measure whether dispatch, store and memory keep up with very many images, and predict what such a run takes.

    python -m bench.scale [--images 1000000] [--side 8] [--workers 2] [--out FOLDER] [--keep NAME]
    python -m bench.scale --scan FOLDER [--images 1000000] [--keep NAME]
    python -m bench.scale --plan [--seconds-per-image X] [--price P] [--keep NAME]

The first form runs the real driver, dispatch, Ray actors and store over made-up images: a worker does not climb, it makes up
two arms with four images for every source image as fast as it can. It prints finished images per second, memory on the way,
and how long it takes to open the run again. Images are tiny unless `--side` says otherwise; with 192 they are about as large
as PNG files of photographs at 256 pixels. The second form only opens a run again that the first has left with `--out`. The
third computes time, price and disk space of real runs from what `bench/results` holds; the space is kept as NAME_store.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from bench.made_up import SIDE, Images, outcome
from bench.plan import plan, room
from bench.results import add_keep, command, keep

from counterfoil import store
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import Progress
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.ray import process_images
from counterfoil.protocols.ray.cluster import Cluster
from counterfoil.protocols.ray.dispatch import Answer
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.ray.workers import Described, ImageWorker
from counterfoil.protocols.running import missing
from counterfoil.store import layout

SPEC = FmrSpec.model_validate({"model": "made:up", "data": "made:up", "generator": "made:up", "oracle": "made:up"})


class MadeUpWorker(ImageWorker):
    """Like the worker for images, without an engine: all that it is sent is finished at once."""

    def __init__(self, out: Path, *, threads: int, side: int, packed: bool) -> None:
        super().__init__(None, out, threads=threads, packed=packed)
        self._side = side

    def assemble(self, check: bool, given: None) -> Described:
        """There is nothing to build."""
        return Described({})

    def process(self, items: Sequence[Sample], at_least: int) -> Answer:
        """Records and images of some samples, in a chunk on the disk."""
        return self.answer(deque((sample.image_id, outcome(sample, self._side)) for sample in items))

    def sign_of_life(self) -> int:
        """Its calls are short."""
        return time.monotonic_ns()


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

    with Cluster(Execution("ray", workers), device="cpu") as cluster:
        cluster.start(MadeUpWorker, out.resolve(), side=side, packed=laid["packed"])
        with store.write(out, spec=SPEC.model_dump(mode="json"), classes=data.classes, provenance={}, **laid) as writer:
            began, used = time.perf_counter(), (_processor([driver]), _processor(_workers(driver)))
            process_images(cluster, SPEC, data, writer, watch=watch, tell=print)
            took = time.perf_counter() - began
            used = (_processor([driver]) - used[0], _processor(_workers(driver)) - used[1])
    quarter = [row for row in memory if row[0] >= images / 4]
    size = sum(path.stat().st_size for path in _files(out))
    return [
        {"what": "images", "value": images},
        {"what": "records (trials, predictions, verdicts)", "value": images * 10},
        {"what": "side of the images", "value": side},
        {"what": "workers", "value": workers},
        {"what": "finished images per second through the store", "value": round(images / took)},
        {"what": "MB per second onto the disk", "value": round(size / took / 1e6, 1)},
        {"what": "seconds", "value": round(took, 1)},
        {"what": "CPU µs per image, driver", "value": round(1e6 * used[0] / images)},
        {"what": "CPU µs per image, worker", "value": round(1e6 * used[1] / images)},
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
        if next(missing(writer, data), None) is not None or writer.counts["images"] != images:
            sys.exit(f"{out}: {writer.counts['images']} of {images} images are there")
        listed = time.perf_counter() - began
    return [
        {"what": "chunks", "value": len(store.open_run(out).chunks())},
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
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the images, at least {SIDE}")
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
        print_rows(*plan(given.seconds_per_image, given.price), name=given.keep)
        print_rows(*room(), name=f"{given.keep}_store" if given.keep else None)
    elif given.scan:
        print_rows(scan(given.images, given.scan), f"A run over {given.images:,} made-up images, opened again.", name=given.keep)
    else:
        folder = given.out or Path(tempfile.mkdtemp(prefix="scale-")) / "run"
        try:
            rows = simulate(given.images, given.workers, folder, side=given.side)
        finally:
            if given.out is None:
                shutil.rmtree(folder.parent, ignore_errors=True)
        images = f"four images of {given.side} × {given.side}"
        about = f"The real driver, dispatch, Ray actors and store over made-up images of two arms and {images}."
        print_rows(rows, about, name=given.keep)


def print_rows(rows: list[dict[str, Any]], about: str, *, name: str | None) -> None:
    """Print the rows, and keep them under a name if there is one."""
    print(about)
    for row in rows:
        print("  ".join(f"{key} {value}" if key != "what" else f"{value:<52}" for key, value in row.items()))
    if name:
        keep(name, rows, command=command("bench.scale"), about=about)


if __name__ == "__main__":
    main()
