"""The engine on a processor: number format, layout and threads, against a straightforward loop over the same parts.

    python -m bench.cpu_engine [--images 8] [--budget 10] [--repeats 2] [--parts passes,lab,vqgan] [--threads 1,2] [--keep NAME]

`lab` runs the engine over images of the lab, ten steps each, in calls of eight rows. `vqgan` is one iteration of one image with
VQGAN f16-16384 at 256 pixels, ResNet-50 and CLIP ViT-B/32, random weights: picture, model, gradient, oracle. The loop is one
image at a time in float32, as written from the paper. Every oracle's answer is taken for a yes, so that all ways take the same
steps. `passes` times the two layers that a decoder is made of, 128 channels at 256 × 256 pixels. Processor seconds are those of
all threads; the least of the repeats counts, as all else only adds to a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from bench.results import add_keep, command, keep

from bench import fmr_setup
from counterfoil import protocols
from counterfoil.core.process import keep_freed_memory
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.scheduler import CPU_BATCH, Engine
from counterfoil.engine.step import Step
from counterfoil.parts.weights import modules_of
from counterfoil.protocols.fmr.climbing import ClimbingSpace

CPU = torch.device("cpu")
LOOP = "loop, one image at a time, float32"
FORMATS = {"float32": torch.float32, "bf16": torch.bfloat16}
LAYOUTS = {"": torch.contiguous_format, ", channels last": torch.channels_last}
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "bf16")  # the last is Arm's

Work = Callable[[], object]
Makers = dict[str, Callable[[], Work]]


def lab(images: int, budget: int) -> tuple[int, Makers]:
    """The lab's parts: how many images a piece of work is, and what makes each way's."""
    values = {"model": "lab:narrow", "generator": "lab:vqgan", "oracle": "lab:clip", "data": "lab:wardrobe", "limit": images}
    assembly = ClimbingSpace.of(protocols.parse(values))
    assert assembly.columns == [*range(len(assembly.columns))]  # so labels are the model's own
    oracle: Any = fmr_setup.Agreeing(assembly.oracle)  # type: ignore[arg-type]
    given = fmr_setup.Parts(assembly.model, assembly.generator, oracle, assembly.size)  # type: ignore[arg-type]
    jobs = list(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None))
    search = SearchSpec(budget=budget, control="none")

    def by_engine(precision: Any) -> Work:
        how = {"layout": EngineSpec(precision=precision), "acceleration": Acceleration(precision)}
        engine = Engine(given.model, given.generator, given.oracle, columns=assembly.columns, search=search, **how)
        return lambda: [*engine.run(jobs)]

    return len(jobs), makers(given, by_engine, lambda: fmr_setup.loop(given, jobs, search, batch=1, device="cpu"))


def vqgan(*, small: bool) -> tuple[int, Makers]:
    """The set-up of FMR on ImageNet: one iteration of one image."""
    given = fmr_setup.parts("cpu", small=small)
    job = fmr_setup.jobs(1, given.size)[0]
    labels, seeds = torch.tensor([job.label]), torch.tensor([job.seed])
    length = StepLength(0.03, "l2", "scale")
    with torch.no_grad():
        state = given.generator.start(job.image[None], labels, seeds)

    def by_engine(precision: Any) -> Work:
        acceleration = Acceleration(precision)
        ascent = Step(given.model, given.generator, given.oracle, columns=range(1000), device=CPU, acceleration=acceleration)

        def iterate() -> None:
            outcome = ascent.run(state, labels, gradient=True, names=[job.image_id])
            assert outcome.gradient is not None
            outcome.gradient()
            outcome.looks()

        return iterate

    return 1, makers(given, by_engine, lambda: fmr_setup.iteration(given, state, labels, length))


def makers(given: fmr_setup.Parts, by_engine: Callable[[str], Work], loop: Work) -> Makers:
    """What makes the work of each way, with the weights, which all of them share, laid out for it."""

    def laid_out(make: Callable[[], Work], layout: torch.memory_format) -> Work:
        for part in (given.model, given.generator, given.oracle):
            for module in modules_of(part):
                module.to(memory_format=layout)  # type: ignore[call-overload]
        return make()

    made = {LOOP: partial(laid_out, lambda: loop, torch.contiguous_format)}
    for precision in FORMATS:
        for name, layout in LAYOUTS.items():
            made[f"engine, {precision}{name}"] = partial(laid_out, partial(by_engine, precision), layout)
    return made


def compared(setup: str, count: int, made: Makers, *, threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """A row for every way."""
    torch.set_num_threads(threads)
    made[LOOP]()()  # takes the memory that all of them take
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for _ in range(repeats):  # in turns, so that a slow minute of the machine hits all of them
        for name, make in made.items():
            taken[name].append(timed(make()))
    least = {name: [min(each) / count for each in zip(*times, strict=True)] for name, times in taken.items()}
    for name, (clock, worked) in least.items():
        yield {
            "parts": setup,
            "way": name,
            "threads": threads,
            "seconds an image": round(clock, 3),
            "processor seconds": round(worked, 3),
            "times the loop": round(least[LOOP][0] / clock, 2),
        }


def passes(*, side: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Milliseconds of one thread for a layer, there and back, by format and layout."""
    torch.set_num_threads(1)
    for title, kind in FORMATS.items():
        for name, layout in LAYOUTS.items():
            x = torch.randn(1, 128, side, side).to(kind).contiguous(memory_format=layout).requires_grad_()
            weight = torch.randn(128, 128, 3, 3).to(kind).contiguous(memory_format=layout)
            gain, bias = torch.randn(2, 128).to(kind)
            for layer, work in (
                ("3×3 convolution", lambda x=x, weight=weight: F.conv2d(x, weight, padding=1)),
                ("group norm", lambda x=x, gain=gain, bias=bias: F.group_norm(x, 32, gain, bias)),
            ):
                out, slope = work(), torch.randn_like(x)
                there = min(timed(work)[1] for _ in range(2 * repeats))
                back = min(timed(lambda: torch.autograd.grad(out, x, slope, retain_graph=True))[1] for _ in range(2 * repeats))  # noqa: B023
                yield {"layer": f"{layer}, {title}{name}", "ms forward": round(1e3 * there, 1), "ms back": round(1e3 * back, 1)}


def timed(work: Work) -> tuple[float, float]:
    """Seconds on the clock, and of all threads together."""
    clock, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - worked


def instructions() -> list[str]:
    """The instructions of this processor that matter for number formats, as far as the system tells them."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [each for each in INSTRUCTIONS if each in flags]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=CPU_BATCH)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--parts", default="passes,lab,vqgan")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--small", action="store_true", help="small networks in place of VQGAN f16, to rehearse")
    add_keep(parser)
    given = parser.parse_args()
    keep_freed_memory()  # as a run does
    usual, asked = torch.get_num_threads(), given.parts.split(",")
    found = Found(given.keep, usual)
    if "passes" in asked:
        for row in passes(side=32 if given.small else 256, repeats=given.repeats):
            found.add(row, layer=True)
    setups = {}
    if "lab" in asked:
        setups[f"lab, {given.budget} steps"] = lab(given.images, given.budget)
    if "vqgan" in asked:
        setups["small networks, an iteration" if given.small else "VQGAN f16, an iteration"] = vqgan(small=given.small)
    for threads in (int(each) for each in given.threads.split(",")):
        for title, (count, made) in setups.items():
            for row in compared(title, count, made, threads=threads, repeats=given.repeats):
                found.add(row)


class Found:
    """The rows so far, printed and, if they are to be kept, written as they come."""

    def __init__(self, name: str | None, threads: int) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = []
        self.layers: list[dict[str, Any]] = []
        self.about = (
            "The engine on a processor; seconds an image on the clock, and of all threads. Of instructions for number formats it "
            f"has {', '.join(instructions()) or 'none that are known'}. A run takes {threads} threads here unless told otherwise."
        )

    def add(self, row: dict[str, Any], *, layer: bool = False) -> None:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        (self.layers if layer else self.rows).append(row)
        if self.name and layer:
            about = "Layers of a decoder on one thread of a processor: 128 channels at 256 × 256 pixels, one row."
            keep(f"{self.name}_layers", self.layers, command=command("bench.cpu_engine"), about=about)
        elif self.name:
            keep(self.name, self.rows, command=command("bench.cpu_engine"), about=self.about)


if __name__ == "__main__":
    main()
