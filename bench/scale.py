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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench.made_up import SIDE, Images, outcome
from bench.results import add_keep, command, keep, read

from counterfoil import store
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import Execution, Progress
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.ray import process_images
from counterfoil.protocols.ray.cluster import Cluster
from counterfoil.protocols.ray.dispatch import Answer
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

    def process(self, items: Mapping[str, Sample], at_least: int) -> Answer:
        """Records and images of some samples, in a chunk on the disk."""
        return self.answer({key: outcome(sample, self._side) for key, sample in items.items()})

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


SETS = {
    "ImageNet-1k validation": 50_000,
    "ImageNet-21k": 14_197_122,
    "LAION-400M": 400_000_000,
    "LAION-2B": 2_320_000_000,
    "LAION-5B": 5_850_000_000,
}
EDITED = ("ImageNet-1k validation", "ImageNet-21k")
PAIRS = 113 * (468 + 47 + 32)  # the paper's objects with each of its backgrounds, textures and materials
GPUS = (1, 8, 256)


@dataclass(frozen=True)
class Pace:
    """Measured speed of a protocol's costliest part."""

    seconds: float  # an image and GPU
    warm_up: float  # seconds, once a GPU
    source: str


def plan(seconds: float | None, price: float | None) -> tuple[list[dict[str, Any]], str]:
    """A row a protocol, data set and number of GPUs; and what they were computed from."""
    climbing = Pace(seconds, 0.0, "given") if seconds is not None else _climbing()
    editing, painting = _diffusion("editor: ours"), _diffusion("painter: ours")
    runs = [("FMR", name, images, climbing) for name, images in SETS.items()]
    runs += [("LANCE, five edits each", name, SETS[name], editing) for name in EDITED if editing]
    runs += [("ImageNet-D, one image per prompt", "the paper's prompts", PAIRS, painting)] if painting else []
    (size, where), rate = _bytes_per_image(), _measurement("scale", "finished images per second")
    rows = [
        {
            "protocol": protocol,
            "data": name,
            "images": images,
            "GPUs": gpus,
            "time": duration(pace.warm_up + images * pace.seconds / gpus),
            **({"price": round((pace.warm_up * gpus + images * pace.seconds) / 3600 * price)} if price is not None else {}),
            "images/s": round(gpus / pace.seconds, 1 if pace.seconds < 1 else 3),
            **({"MB/s to store": round(gpus / pace.seconds * size / 1e6, 1)} if size and protocol == "FMR" else {}),
            **({"of the driver's rate, %": round(100 * gpus / pace.seconds / rate, 1)} if rate and protocol == "FMR" else {}),
        }
        for protocol, name, images, pace in runs
        for gpus in GPUS
    ]
    said = [_in_words("FMR", climbing), *([_in_words("LANCE's editor", editing)] if editing else [])]
    said += [_in_words("ImageNet-D's painter", painting)] if painting else []
    said += [f"an FMR image takes {size / 1e3:,.0f} kB of disk ({where})"] if size else []
    said += [f"driver and store pass on {rate:,.0f} images/s with tiny images (scale)"] if rate else []
    said += [f"{price:g} per GPU and hour"] if price is not None else []
    return rows, f"{'; '.join(said)}."


def room() -> tuple[list[dict[str, Any]], str]:
    """A row a data set: what an FMR run over it needs next to GPUs; and what that was computed from."""
    size, where = _bytes_per_image()
    if size is None:
        sys.exit(
            "no 'bytes on the disk an image' in bench/results/scale_pictures.json; run bench.scale with --keep scale_pictures"
        )
    images = _needed("scale", "images")
    quarter, end = (_needed("scale", f"MiB of the driver {when}") for when in ("after a quarter", "at the end"))
    scan = _needed("scale", "seconds to list what is left") / images
    growth = (end - quarter) * 2**20 / (0.75 * images)
    rows = [
        {
            "data": name,
            "images": count,
            "disk, TB": round(count * size / 1e12, 2),
            "driver memory, GB": round((end * 2**20 + growth * max(count - images, 0)) / 1e9, 1),
            "parts": -(-count // layout(count, at_least=64)["chunk_images"]),
            "resume scan": duration(count * scan),
        }
        for name, count in SETS.items()
    ]
    about = (
        f"{size:,.0f} bytes of disk an image ({where}); {end:,.0f} MiB of the driver at {images:,.0f} images and "
        f"{growth:.1f} bytes more for each beyond them, {1e6 * scan:.1f} µs an image to list what is left (scale)."
    )
    return rows, about


def _climbing() -> Pace:
    """The whole run with its control arm where that was measured on a GPU; else the engine alone, without control and store."""
    alone = _best("fmr_speed", "seconds_per_image", lambda row: str(row["what"]).startswith("engine"))
    whole = _best("fmr_whole", "seconds per image", lambda row: row["what"] == "whole run" and row["control"] == "path")
    if alone and whole:
        return Pace(whole[0], alone[1], "fmr_whole, control arm and store included; warming up as in fmr_speed")
    if alone:
        return Pace(*alone, "fmr_speed, the engine alone, neither control arm nor store")
    sys.exit("no measured seconds per image in bench/results/fmr_speed.json; run bench/fmr_speed.py, or give --seconds-per-image")


def _bytes_per_image() -> tuple[float | None, str]:
    """Bytes on the disk an image, of a whole run where one was timed on a GPU, else of the simulation; and where that is from."""
    content = read("fmr_whole")
    rows = content["rows"] if content and "gpu" in content["hardware"] else []
    whole = next(
        (float(row["MB stored per image"]) * 1e6 for row in rows if row.get("control") == "path" and "MB stored an image" in row),
        None,
    )
    return (whole, "fmr_whole") if whole else (_measurement("scale_pictures", "bytes on the disk an image"), "scale_pictures")


def _diffusion(name: str) -> Pace | None:
    found = _best("diffusion_speed", "seconds_per_image", lambda row: str(row["what"]).startswith(name))
    return Pace(*found, "diffusion_speed") if found else None


def _best(name: str, column: str, wanted: Callable[[dict[str, Any]], bool]) -> tuple[float, float] | None:
    """The least seconds of the rows that are wanted, and the seconds to warm up; only what a GPU took counts."""
    content = read(name)
    if not content or "gpu" not in content["hardware"]:
        return None
    found = [row for row in content["rows"] if wanted(row) and column in row]
    row = min(found, key=lambda each: float(each[column]), default=None)
    return (float(row[column]), float(row.get("warm_up_seconds", 0.0))) if row else None


def _measurement(name: str, what: str) -> float | None:
    """A value of the simulation, by how its name begins."""
    content = read(name)
    rows = content["rows"] if content else []
    return next((float(row["value"]) for row in rows if str(row.get("what", "")).startswith(what)), None)


def _needed(name: str, what: str) -> float:
    found = _measurement(name, what)
    if found is None:
        sys.exit(f"no '{what}' in bench/results/{name}.json; run bench.scale with --keep {name}")
    return found


def _in_words(who: str, pace: Pace) -> str:
    warmed = f", {pace.warm_up:.3g} to warm up" if pace.warm_up else ""
    return f"{who}: {pace.seconds:.4g} seconds per image and GPU{warmed} ({pace.source})"


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


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
