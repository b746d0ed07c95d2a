"""Images a second of the engine against two straightforward loops over the same parts, in one run on one machine.

    python -m bench.engine [--images 64] [--budget 10] [--model NAME] [--generator NAME] … [--keep NAME]

The loops are what one would write from the paper (`bench/fmr_setup.py`): render with a gradient, step, render again, ask the
oracle. `one` takes an image at a time; `batched` takes 32 at a time and goes on until the last of them has ended. The model's
outputs must be the data's classes in their order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from bench.fmr_setup import Parts, loop
from bench.results import add_keep, command, keep

from counterfoil import protocols
from counterfoil.engine.scheduler import Job
from counterfoil.protocols.fmr.climbing import ClimbingSpace


def engine(assembly: ClimbingSpace, jobs: list[Job]) -> int:
    """The same by the engine."""
    return sum(done.climbs[0].steps for done in assembly.new_engine().run(jobs))


def timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    kept = work()
    return time.perf_counter() - began, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    for part, default in (("model", "lab:narrow"), ("generator", "lab:vqgan"), ("oracle", "lab:clip"), ("data", "lab:wardrobe")):
        parser.add_argument(f"--{part}", default=default)
    add_keep(parser)
    given = parser.parse_args()
    spec = protocols.parse(
        {
            "model": given.model,
            "generator": given.generator,
            "oracle": given.oracle,
            "data": given.data,
            "limit": given.images,
            "search": {"budget": given.budget, "control": "none"},
        }
    )
    assembly = ClimbingSpace.of(spec)
    if assembly.columns != list(range(len(assembly.dataset.classes))):
        sys.exit(f"the loops take outputs for classes, and {given.model} has them in another order than {given.data}")
    parts = Parts(assembly.model, assembly.generator, assembly.oracle, assembly.size)
    jobs = list(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None))
    ways: dict[str, Callable[[], int]] = {
        "one image at a time": lambda: loop(parts, jobs, spec.search, batch=1, device="cpu"),
        "batches of 32": lambda: loop(parts, jobs, spec.search, batch=32, device="cpu"),
        "engine": lambda: engine(assembly, jobs),
    }
    engine(assembly, jobs[:8])  # warm up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    steps = {}
    for _ in range(given.repeats):  # in turns, so that a slow minute of the machine hits all of them
        for name, work in ways.items():
            took, steps[name] = timed(work)
            seconds[name].append(took)
    best = {name: min(times) for name, times in seconds.items()}
    rows = [
        {"what": name, "images/s": len(jobs) / took, "steps kept": steps[name], "times": best["one image at a time"] / took}
        for name, took in best.items()
    ]
    print(f"{len(jobs)} images, budget {given.budget}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for row in rows:
        print("{what:<22} {images/s:7.2f} images/s   steps kept {steps kept:>6}   {times:.2f}x".format(**row))
    if given.keep:
        about = (
            f"{given.generator}, {given.model} and {given.oracle} on {len(jobs)} images, {given.budget} steps, float32, best of "
            f"{given.repeats}."
        )
        keep(given.keep, rows, command=command("bench.engine"), about=about)


if __name__ == "__main__":
    main()
