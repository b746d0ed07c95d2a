"""Seconds of the engine alone for 8, 400 and 800 images, and per image at 50 steps, in one sitting on one machine.

    python -m bench.engine [--device cuda] [--images 8 400 800] [--iterations 50] [--controls none path] [--loops] [--keep NAME]

The set-up is that of bench/fmr_setup.py: images in memory, nothing stored, every climb takes all steps. Seconds per image are
what a long run takes more than a short one, so that choosing and capturing kernels falls out; a run of two steps warms up.
With `--loops` the loops one would write from the paper are timed beside it: an image at a time, and batches of 32. `--small`
takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from bench.card import clear, timed
from bench.fmr_setup import Parts, jobs, loop, parts
from bench.results import add_keep, command, keep

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.scheduler import Engine, SearchResult

LOOPS = {"one image at a time": 1, "batches of 32": 32}


def engine_of(given: Parts, asked: argparse.Namespace, *, control: str, iterations: int) -> Engine:
    """An engine as a run has it by default on the device."""
    precision = "bf16" if asked.device == "cuda" else "float32"
    return Engine(
        given.model, given.generator, given.oracle, columns=list(range(1000)), device=asked.device,
        search=SearchSpec(budget=iterations, control=control), layout=EngineSpec(precision=precision, compile=asked.compile),
    )  # fmt: skip


def check(done: list[SearchResult], iterations: int) -> None:
    """End if a climb did not take all its steps: then less was timed than is said."""
    short = [each.job.image_id for each in done if {climb.steps for climb in each.climbs} != {iterations}]
    if short:
        sys.exit(f"{short[0]} and {len(short) - 1} others did not take {iterations} steps")


def engine_row(given: Parts, asked: argparse.Namespace, control: str) -> dict[str, Any]:
    """Seconds for each number of images with one kind of control."""
    clear(asked.device)
    engine = engine_of(given, asked, control=control, iterations=asked.iterations)
    engine.search = SearchSpec(budget=2, control=control)
    list(engine.run(jobs(2 * engine.batch_size, given.size)))
    engine.search = SearchSpec(budget=asked.iterations, control=control)
    row: dict[str, Any] = {"what": "engine", "control": control}
    seconds = {}
    for count in sorted(asked.images):
        work, done = jobs(count, given.size), list[SearchResult]()
        seconds[count] = timed(lambda work=work, done=done: done.extend(engine.run(work)), asked.device)  # type: ignore[misc]
        check(done, asked.iterations)
        row[f"seconds for {count} images"] = seconds[count]
    if len(seconds) > 1:
        *_, few, many = sorted(seconds)
        row["seconds per image"] = (seconds[many] - seconds[few]) / (many - few)
    if asked.device == "cuda":
        row["GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return {**row, "batch size": engine.batch_size}


def loop_row(given: Parts, asked: argparse.Namespace, name: str) -> dict[str, Any]:
    """Seconds per image of a plain loop, over as many images as it takes at a time; 10 steps, which take the same time each."""
    clear(asked.device)
    batch, steps = LOOPS[name], min(asked.iterations, 10)
    work, search = jobs(batch, given.size), SearchSpec(budget=steps, step=0.03, control="none")
    loop(given, work, search.model_copy(update={"budget": 1}), batch=batch, device=asked.device)
    seconds = timed(lambda: loop(given, work, search, batch=batch, device=asked.device), asked.device)
    return {"what": name, "control": "none", "seconds per image": seconds / batch * asked.iterations / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, nargs="+", default=[8, 400, 800])
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--controls", nargs="+", choices=("none", "path", "distance"), default=["none", "path"])
    parser.add_argument("--compile", action="store_true", help="as a run of many images does")
    parser.add_argument("--loops", action="store_true", help="time plain loops as well")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    given = parts(asked.device, small=asked.small)
    rows = []
    for name, row in [(None, control) for control in asked.controls] + [(name, "") for name in LOOPS if asked.loops]:
        rows.append(loop_row(given, asked, name) if name else engine_row(given, asked, row))
        print(
            "  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in rows[-1].items())
        )
    if asked.keep:
        networks = "tiny networks, a rehearsal" if asked.small else "VQGAN f16-16384 at 256 px, ResNet-50 and CLIP ViT-B/32"
        about = f"FMR with {networks}, random weights, {asked.iterations} steps, images in memory, nothing stored."
        keep(asked.keep, rows, command=command("bench.engine"), about=about)


if __name__ == "__main__":
    main()
