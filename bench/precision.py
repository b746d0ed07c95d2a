"""Measure the effect of lower precision on the results: FMR and VR on the lab in bf16 against float32, and image by image.

    python -m bench.precision [--device cuda] [--images 600] [--ways rounding,bf16] [--tile 512] [--at-once 4] [--keep NAME]

The same images, seeds and steps each time; only the dtype differs, and with it the layers that are fused. A climb goes
through nearest codes and a verdict at every step, so that the last digit can send an image another way. How many go another way
by rounding alone is in two rows: `rounding`, float32 both times, once by the network's own layers and once by the fused
ones; and `other tiles`, float32 both times, half as many images per call. A dtype changes the results if its differences are
larger than that, or lean to one side; the 95 % interval of a difference is paired, by resampling images.

`bf16` is what a short run on a GPU does by default, `bf16 compiled` a long one. One run of each tells little more than how
images were sent this way and that, so the last row sets the mean of all runs in bf16 against the mean of all in float32.

Calls for 128 images, a run's default, leave a GPU idle with models as small as the lab's: hence `--tile`, and `--at-once` pairs
of a generator and a model that share it. Images go through all ways a block at a time, and after every block the rows are printed
and kept for all images so far, so that a stop in between leaves fewer images and nothing lopsided. It ends with 1 if bf16, by
that last row, moves FMR or VR by more than half a point.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from queue import Empty
from typing import Any, NamedTuple

import numpy as np
import torch
from bench.results import add_keep, command, keep

from counterfoil import protocols
from counterfoil.core.spec import EngineSpec
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import CPU_BATCH, Engine, Job, SearchResult
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.fmr.climbing import ClimbingSpace

COVERS = ["src/counterfoil/engine", "src/counterfoil/parts/fast"]
FLOAT32 = "float32"
OTHER_TILES = "other tiles"
BF16 = "all bf16 against all float32"
WAYS = {
    "rounding": Acceleration(fused=True),
    OTHER_TILES: Acceleration(),
    "bf16": Acceleration("bf16", fused=True, graphs=True),
    "bf16 compiled": Acceleration("bf16", fused=True, compile=True, graphs=True),
}
LIMIT = 0.5  # points of FMR or VR that bf16 may make
GPU_BATCH = 512
RESAMPLES = 2000


class Outcome(NamedTuple):
    """Outcome of one image."""

    known: bool  # the model is right before anything is made
    validated: bool
    right: bool  # the oracle accepts the last image, and the model is right about it
    steps: int


class Runs:
    """The same images through one engine for every way, block after block."""

    def __init__(self, spec: FmrSpec, ways: dict[str, Acceleration], tile: int) -> None:
        tiles = {way: tile // 2 if way == OTHER_TILES else tile for way in ways}
        self.engines = {
            way: _engine(ClimbingSpace.of(spec), how, tiles[way]) for way, how in ways.items()
        }  # each with its own layout
        self.found: dict[str, dict[str, Outcome]] = {way: {} for way in ways}
        self.seconds = dict.fromkeys(ways, 0.0)

    def take(self, block: list[Job]) -> None:
        """Every image's outcome in every way, and nothing else of it."""
        for way, engine in self.engines.items():
            began = time.perf_counter()
            self.found[way] |= {done.job.image_id: outcome(done) for done in engine.run(block)}
            self.seconds[way] += time.perf_counter() - began

    def about(self, way: str) -> dict[str, Any]:
        """Images so far, the tile as it is now, which an engine short of memory halves, and seconds, compiling included."""
        return {"images": len(self.found[way]), "tile": self.engines[way].batch_size, "seconds": round(self.seconds[way], 1)}


def _engine(assembly: ClimbingSpace, how: Acceleration, tile: int) -> Engine:
    return Engine(
        assembly.model, assembly.generator, assembly.oracle, columns=assembly.columns, search=assembly.spec.search,
        layout=EngineSpec(batch_size=tile, slots=2 * tile), device=assembly.spec.device, acceleration=how,
    )  # fmt: skip


def outcome(done: SearchResult) -> Outcome:
    climb = done.climbs[0]
    validated = climb.ending != "unvalidated"
    return Outcome(done.clean.correct, validated, validated and climb.kept[-1].correct, climb.steps)


def numbers(found: dict[str, Outcome]) -> dict[str, float]:
    """SA over all images, PA over those whose image the oracle accepts, FMR = PA / SA, VR, in per cent."""
    known, validated, right, _ = np.array(list(found.values()), dtype=float).mean(0)
    steps = np.mean([one.steps for one in found.values() if one.validated])
    values = {"SA": known, "PA": right / validated, "FMR": right / validated / known, "VR": validated, "steps": steps / 100}
    return {name: round(100 * float(value), 3) for name, value in values.items()}


def intervals(found: Sequence[dict[str, Outcome]], exact: Sequence[dict[str, Outcome]]) -> dict[str, tuple[float, float]]:
    """95 % intervals of the differences of FMR and VR, means over runs, with the same resampled images for all of them."""
    runs = [*found, *exact]
    table = np.array([[value for run in runs for value in run[name][:3]] for name in exact[0]], dtype=float)  # (N, 3 × runs)
    kinds, counts = np.unique(table, axis=0, return_counts=True)  # images are of few kinds, so drawing kinds is enough  # (K, …)
    drawn = np.random.default_rng(0).multinomial(len(table), counts / len(table), size=RESAMPLES) / len(table)  # (R, K)
    known, validated, right = np.moveaxis((drawn @ kinds).reshape(-1, len(runs), 3), 2, 0)  # (R, runs) each
    fmr = 100 * right / np.maximum(validated, 1e-9) / np.maximum(known, 1e-9)
    values = {"FMR": fmr, "VR": 100 * validated}
    return {
        name: (round(float(low), 2), round(float(high), 2))
        for name, each in values.items()
        for low, high in [np.quantile(each[:, : len(found)].mean(1) - each[:, len(found) :].mean(1), (0.025, 0.975))]
    }


def difference(found: Sequence[dict[str, Outcome]], exact: Sequence[dict[str, Outcome]]) -> dict[str, Any]:
    """Measure how far FMR and VR of some runs are from those of others, means over runs."""
    told: dict[str, Any] = {}
    for key, (low, high) in intervals(found, exact).items():
        off = np.mean([numbers(run)[key] for run in found]) - np.mean([numbers(run)[key] for run in exact])
        told |= {f"{key} off by": round(float(off), 2), f"{key} interval": f"{low:+.2f} to {high:+.2f}"}
    return told


def agreement(found: dict[str, Outcome], exact: dict[str, Outcome]) -> dict[str, float]:
    """Per cent of images for which two runs say the same."""
    pairs = [(found[name], exact[name]) for name in exact]
    same = {
        "verdict": [a.validated == b.validated for a, b in pairs],
        "outcome": [(a.validated, a.right) == (b.validated, b.right) for a, b in pairs],
        "steps": [a.steps == b.steps for a, b in pairs],
    }
    return {name: round(100 * sum(each) / len(each), 2) for name, each in same.items()}


def compare(generator: str, model: str, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One generator and one model: the numbers in float32, and those of every other way against them."""
    spec = protocols.parse(
        {
            "model": f"lab:{model}",
            "generator": f"lab:{generator}",
            "oracle": "lab:clip",
            "device": asked.device,
            "data": {"name": "lab:wardrobe", "count": asked.images},
            "engine": {"precision": "float32"},
            "search": {"budget": asked.budget, "control": "none"},
        }
    )
    assembly = ClimbingSpace.of(spec)
    named = {FLOAT32: Acceleration(), **{way: WAYS[way] for way in asked.ways.split(",")}}
    on_gpu = asked.device.startswith("cuda")
    runs = Runs(spec, named if on_gpu else {way: replace(how, graphs=False) for way, how in named.items()}, asked.tile)
    jobs = assembly.jobs(iter(assembly.dataset), lambda sample, problem: None)
    while block := list(islice(jobs, asked.block)):
        runs.take(block)
        yield from ({"generator": generator, "model": model, **row} for row in rows_of(runs, named))


def rows_of(runs: Runs, ways: dict[str, Acceleration]) -> Iterator[dict[str, Any]]:
    """A row for every way, and one for bf16 as a whole, over the images so far."""
    exact = runs.found[FLOAT32]
    yield {"way": FLOAT32, **runs.about(FLOAT32), **numbers(exact)}
    for way, found in runs.found.items():
        if way != FLOAT32:
            same = {f"same {key}": share for key, share in agreement(found, exact).items()}
            yield {"way": way, **runs.about(way), **numbers(found), **difference([found], [exact]), **same}
    half, whole = ([runs.found[way] for way, how in ways.items() if how.precision == kind] for kind in ("bf16", "float32"))
    if half:
        counts = {"images": len(exact), "bf16 runs": len(half), "float32 runs": len(whole)}
        yield {"way": BF16, **counts, **difference(half, whole)}


_arriving: Any = None  # where a process of the pool puts its rows


def _begin(queue: Any, threads: int) -> None:
    global _arriving
    _arriving = queue
    torch.set_num_threads(threads)


def _put(generator: str, model: str, asked: argparse.Namespace) -> None:
    try:
        for row in compare(generator, model, asked):
            _arriving.put(row)
    finally:
        _arriving.put(None)


def together(pairs: list[tuple[str, str]], asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of all pairs as they come, some pairs at a time in processes of their own."""
    context = get_context("spawn")
    queue, threads = context.Queue(), max((os.cpu_count() or 1) // asked.at_once, 1)
    with ProcessPoolExecutor(asked.at_once, mp_context=context, initializer=_begin, initargs=(queue, threads)) as pool:
        under_way: list[Future[None]] = [pool.submit(_put, *pair, asked) for pair in pairs]
        ended = 0
        while ended < len(pairs):
            try:
                row = queue.get(timeout=5)
            except Empty:
                for each in under_way:
                    if each.done():
                        each.result()  # a process that was killed says so here
                continue
            if row is None:
                ended += 1
            else:
                yield row
        for each in under_way:
            each.result()


def too_far(rows: list[dict[str, Any]]) -> list[str]:
    """Return where bf16 moves FMR or VR by more than it may."""
    return [
        f"{row['generator']}, {row['model']}, {row['way']}: {key} {row[key]:+.2f}"
        for row in rows
        for key in ("FMR off by", "VR off by")
        if row["way"] == BF16 and abs(row[key]) > LIMIT
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--generators", default="vqgan,kl")
    parser.add_argument("--models", default="diverse,narrow")
    parser.add_argument("--ways", default="rounding,bf16", help=f"of {', '.join(WAYS)}")
    parser.add_argument(
        "--tile", type=int, help=f"images per call; {GPU_BATCH} on a GPU, {CPU_BATCH} on a CPU; twice as many slots"
    )
    parser.add_argument("--at-once", type=int, default=1, help="pairs of a generator and a model that run at a time")
    parser.add_argument("--block", type=int, help="images that go through all ways before others; eight tiles")
    add_keep(parser)
    asked = parser.parse_args()
    asked.tile = asked.tile or (GPU_BATCH if asked.device.startswith("cuda") else CPU_BATCH)
    asked.block = asked.block or 8 * asked.tile
    if unknown := [way for way in asked.ways.split(",") if way not in WAYS]:
        sys.exit(f"--ways: no way is called {unknown[0]!r}; there are {', '.join(WAYS)}")
    pairs = [(generator, model) for generator in asked.generators.split(",") for model in asked.models.split(",")]
    about = (
        f"FMR and VR on up to {asked.images:,} images of the lab, {asked.budget} steps, by dtype; differences from "
        f"float32 in points, with paired 95 % intervals, and per cent of images for which both say the same."
    )
    rows: list[dict[str, Any]] = []
    for row in together(pairs, asked):
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows = [each for each in rows if any(each[key] != row[key] for key in ("generator", "model", "way"))]
        rows.append(row)  # in the place of the same for fewer images
        rows.sort(key=lambda each: pairs.index((each["generator"], each["model"])))
        if asked.keep:
            keep(
                asked.keep,
                rows,
                command=command("bench.precision"),
                about=about,
                covers=["src/counterfoil/engine", "src/counterfoil/parts/fast"],
            )
    worst = max((abs(row[key]) for row in rows for key in row if key.endswith("off by")), default=0.0)
    print(f"largest difference of FMR or VR from float32 in any row: {worst:.2f} points")
    if far := too_far(rows):
        sys.exit(f"bf16 moves them by more than {LIMIT} points: {'; '.join(far)}")


if __name__ == "__main__":
    main()
