"""Images a second of the engine against two straightforward loops over the same parts, in one run on one machine.

    python bench/engine.py [--images 64] [--budget 10] [--model NAME] [--generator NAME] [--oracle NAME] [--data NAME]

The loops are what one would write from the paper: render with a gradient, step, render again, ask the oracle. `one` takes
an image at a time; `batched` takes 32 at a time and goes on until the last of them has ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil import spec as specs
from counterfoil.assembly import Assembly, assemble
from counterfoil.engine import EightBits, Job
from counterfoil.guidance import StepLength


def loop(assembly: Assembly, jobs: list[Job], batch: int) -> int:
    """Algorithm 1 as one would write it down, `batch` images at a time. Returns the number of steps kept."""
    model, generator, oracle, search = assembly.model, assembly.generator, assembly.oracle, assembly.spec.search
    length = StepLength(search.step, search.norm, search.unit)
    kept = 0
    for at in range(0, len(jobs), batch):
        some = jobs[at : at + batch]
        labels = torch.tensor([job.label for job in some])
        truth = torch.tensor(assembly.columns)[labels]
        with torch.no_grad():
            state = generator.start(torch.stack([job.image for job in some]), labels, torch.tensor([job.seed for job in some]))
            alive = accepted(oracle, EightBits.apply(generator.render(state)), labels)
        for _ in range(search.budget):
            if not alive.any():
                break
            leaf = state[generator.moving].detach().requires_grad_()
            loss = F.cross_entropy(
                model.logits(EightBits.apply(generator.render({**state, generator.moving: leaf}))), truth, reduction="sum"
            )
            gradient = torch.autograd.grad(loss, leaf)[0]
            with torch.no_grad():
                state = generator.step(state, length.fit(gradient, state["scale"]))
                alive &= accepted(oracle, EightBits.apply(generator.render(state)), labels)
            kept += int(alive.sum())
    return kept


@torch.no_grad()
def accepted(oracle, images: Tensor, labels: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    return oracle.judge(images, labels).keeps_label != 0


def engine(assembly: Assembly, jobs: list[Job]) -> int:
    """The same by the engine."""
    return sum(done.climbs[0].steps for done in assembly.engine().run(jobs))


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
    given = parser.parse_args()
    spec = specs.parse(
        {
            "model": given.model,
            "generator": given.generator,
            "oracle": given.oracle,
            "data": given.data,
            "limit": given.images,
            "search": {"budget": given.budget, "control": False},
        }
    )
    assembly = assemble(spec)
    jobs = list(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None))
    ways: dict[str, Callable[[], int]] = {
        "one image at a time": lambda: loop(assembly, jobs, 1),
        "batches of 32": lambda: loop(assembly, jobs, 32),
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
    print(f"{len(jobs)} images, budget {given.budget}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, took in best.items():
        print(
            f"{name:<22} {len(jobs) / took:7.2f} images/s   steps kept {steps[name]:>6}   engine is {took / best['engine']:.2f}x"
        )
    print(json.dumps({name: round(len(jobs) / took, 3) for name, took in best.items()}))


if __name__ == "__main__":
    main()
