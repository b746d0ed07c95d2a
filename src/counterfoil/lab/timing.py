"""`python -m counterfoil.lab.timing NAME …`: how long the lab's models take on two cores, which is what the demo lives on.

Times are of the machine and of what else it does, so they are measured apart from quality, on an idle machine: the median of
several, with the least and the greatest. With `--keep` they are written to `timed.json` beside the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionPipeline

from counterfoil.lab.commands import errors_in_a_line
from counterfoil.lab.garments import shipped
from counterfoil.lab.measure import MEASURES
from counterfoil.lab.measures.painter import GUIDANCE, STEPS
from counterfoil.lab.measures.record import machine
from counterfoil.lab.places import WEIGHTS, known
from counterfoil.lab.readings import Reading, median
from counterfoil.lab.scenes import render, sample
from counterfoil.lab.vocabulary import GARMENTS
from counterfoil.parts import registry
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.protocols.provenance import versions

FILE = "timed.json"
THREADS = 2
REPEATS = 5
BATCH = 32
LOAD_AT_MOST, STEP_AT_MOST, PAINT_AT_MOST = 2.0, 30.0, 3.5


def loads(name: str) -> list[float]:
    """Seconds until the model can be used, each in a fresh interpreter that has imported the libraries."""
    times = []
    for _ in range(REPEATS):
        asked = [sys.executable, "-m", "counterfoil.lab.loading", name]
        threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        answer = subprocess.run(asked, check=True, capture_output=True, text=True, env={**os.environ, **threads})
        times.append(float(answer.stdout.split()[-1]))
    return times


def latent_step(name: str) -> list[float]:
    """Milliseconds an image of rendering and going back to the latent, as the search does, for so many images at once."""
    generator: LatentGenerator = registry.create("generator", name)
    garments = shipped("report")
    images, _ = render(sample(BATCH, garments=garments), garments)
    rows = torch.arange(BATCH)
    state = generator.start(images, rows % len(GARMENTS), rows)
    state = {**state, generator.moving: state[generator.moving].requires_grad_(True)}

    def step() -> None:
        generator.render(state).square().mean().backward()

    return [1000 * seconds / BATCH for seconds in _times(step)]


def painting(folder: Path) -> list[float]:
    """Seconds to paint one picture."""
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    text = "a photo of a red wool dress on a beach"
    return _times(lambda: pipeline(text, num_inference_steps=STEPS, guidance_scale=GUIDANCE))


def timed(name: str) -> list[Reading]:
    """All times of one model."""
    readings = [median("loading", loads(name), "s", at_most=LOAD_AT_MOST)]
    if name == "vqgan":
        readings.append(_step("lab:vqgan"))
    if name == "diffusion":
        seconds = painting(WEIGHTS / "diffusion")
        readings.append(median(f"painting, {STEPS} steps", seconds, "s an image", at_most=PAINT_AT_MOST))
        readings.append(_step("lab:kl"))
    return readings


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, time, print, and keep what is to be kept."""
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.timing", description="Time the lab's models on a CPU.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MEASURES)}")
    parser.add_argument("--keep", action="store_true", help=f"write {FILE} into the models' folders")
    given = parser.parse_args(arguments)
    with errors_in_a_line():
        for name in [known(name, MEASURES) for name in given.names] or MEASURES:
            readings = timed(name)
            for one in readings:
                target = f"<= {one.at_most:g}" if one.at_most is not None else ""
                print(
                    f"{name:20} {one.name:40} {one.value:7.2f} [{one.low:.2f} to {one.high:.2f}] {one.unit} {target}", flush=True
                )
            if given.keep:
                content = json.dumps(_record(readings), indent=2, ensure_ascii=False)
                (WEIGHTS / name / FILE).write_text(content + "\n", encoding="utf-8")


def _step(name: str) -> Reading:
    return median(f"decode and backward of {name}, batch {BATCH}", latent_step(name), "ms an image", at_most=STEP_AT_MOST)


def _times(work: Callable[[], object]) -> list[float]:
    """Seconds that the work takes, several times, after once to warm up."""
    times = []
    with _threads(THREADS):
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
    return times[1:]


def _record(readings: Sequence[Reading]) -> dict[str, Any]:
    facts = {"machine": machine("cpu"), "threads": THREADS, "versions": versions()}
    return {**facts, "readings": [reading.record() for reading in readings]}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    main()
