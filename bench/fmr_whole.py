"""Seconds an image of a whole FMR run, pictures read from a folder and everything stored, against the engine alone.

    python -m bench.fmr_whole [--device cuda] [--images 256 768] [--iterations 50] [--control both] [--compile] [--keep NAME]

The parts are those of bench/fmr_setup.py. The pictures are JPEG files of 500 × 375 pixels with the spectrum of photographs. The
engine alone has them in memory and writes nothing; the whole run is `protocols.fmr.running`: it tries the parts, reads, climbs,
makes PNG files, and commits records and pictures to a store, in packs as one over ImageNet does. Both are timed with the control
arm of random steps and without it, unless `--control` asks for one of these.

Pictures are stored behind the engine's back, so that the moment at which one is stored says little about the pace. What counts is
therefore how much longer a long run takes than a short one, from the first call to the last byte; choosing and recording kernels
is in both and falls out, and a first run that is not timed compiles. It fails if a climb did not take all iterations. `--small`
takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from bench.card import clear, synchronize
from bench.fmr_setup import Parts, parts
from bench.results import add_keep, command, keep
from PIL import Image

from counterfoil import protocols
from counterfoil.engine.device import GPU_BATCH
from counterfoil.parts.datasets.files import FolderOptions, folder
from counterfoil.protocols.fmr.climbing import ClimbingSpace
from counterfoil.protocols.fmr.spec import FmrSpec
from counterfoil.protocols.workspace import Given
from counterfoil.store import layout as store_layout
from counterfoil.store import open_run

CLASSES = 16
WIDTH, HEIGHT = 500, 375
ARMS = {"both": (False, True), "with": (True,), "without": (False,)}


def photographs(folder: Path, count: int) -> None:
    """Pictures whose detail falls off as that of photographs does, so that they are about as large as files."""
    chance = torch.Generator().manual_seed(0)
    for number in range(count):
        total = torch.zeros(1, 3, HEIGHT, WIDTH)
        for octave in range(2, 9):
            coarse = torch.randn(1, 3, 2**octave * 3 // 4, 2**octave, generator=chance)
            total += F.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bilinear", align_corners=False) / 2**octave
        pixels = ((total[0] / total.std() * 0.25 + 0.5).clamp(0, 1) * 255).byte().permute(1, 2, 0)  # (H, W, 3)
        place = folder / f"thing {number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(place / f"{number:05d}.jpg", quality=90)


def spec_of(asked: argparse.Namespace, *, control: bool, iterations: int) -> FmrSpec:
    return FmrSpec.model_validate(
        {
            **{role: f"bench:{role}" for role in ("model", "data", "generator", "oracle")},
            "device": asked.device,
            "search": {"budget": iterations, "control": "path" if control else "none"},
            "engine": {"batch_size": asked.slots // 2, "slots": asked.slots, "compile": asked.compile or None},
        }
    )


def engine_alone(given: Given, spec: FmrSpec) -> float:
    """Seconds for the images of the folder, which are in memory before."""
    assembly = ClimbingSpace.of(spec, given)
    jobs = list(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None))
    began = time.perf_counter()
    for done in assembly.new_engine().run(jobs):
        _check(done.job.image_id, [climb.steps for climb in done.climbs], spec)
    synchronize(spec.device)
    return time.perf_counter() - began


def whole_run(given: Given, spec: FmrSpec, out: Path) -> float:
    """Seconds for the same through the protocol, into a store."""
    began = time.perf_counter()
    protocols.run(spec, out, given=given)
    took = time.perf_counter() - began
    for trial in open_run(out).trials:
        _check(trial.image_id, [trial.steps], spec)
    return took


def _check(image: str, steps: list[int], spec: FmrSpec) -> None:
    if set(steps) != {spec.search.budget}:
        raise SystemExit(f"{image}: its climbs took {steps} steps, and all are to take {spec.search.budget}")


def compared(networks: Parts, folder: Path, asked: argparse.Namespace) -> None:
    """Both with the control and without it, one after the other."""
    rows: list[dict[str, Any]] = []
    few, many = asked.images
    for control in ARMS[asked.control]:
        engine_alone(given_parts(networks, folder / f"{few} pictures"), spec_of(asked, control=control, iterations=2))  # compiles
        spec = spec_of(asked, control=control, iterations=asked.iterations)
        for whole in (False, True):
            seconds = {}
            for count in (few, many):
                clear(asked.device)
                given, out = given_parts(networks, folder / f"{count} pictures"), folder / f"run of {count}, {control}"
                seconds[count] = whole_run(given, spec, out) if whole else engine_alone(given, spec)
            row: dict[str, Any] = {"what": "whole run" if whole else "engine alone", "control": control}
            row |= {"seconds an image": (seconds[many] - seconds[few]) / (many - few)}
            row |= {f"seconds for {count} images": took for count, took in seconds.items()}
            if whole:
                row["times the engine alone"] = row["seconds an image"] / rows[-1]["seconds an image"]
                row["MB stored an image"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6 / many
            rows.append(row)
            print("  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items()))
            write(rows, asked)


def write(rows: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """What there is so far."""
    if asked.keep:
        networks = "tiny networks, a rehearsal" if asked.small else "VQGAN f16-16384 at 256 px, ResNet-50 and CLIP ViT-B/32"
        about = (
            f"FMR with {networks}, random weights, {asked.iterations} iterations, pictures from a folder and all records and "
            "pictures stored, against the engine alone; seconds an image are what a long run takes more than a short one."
        )
        keep(asked.keep, rows, command=command("bench.fmr_whole"), about=about)


def given_parts(networks: Parts, photos: Path) -> Given:
    roles = {"model": networks.model, "generator": networks.generator, "oracle": networks.oracle}
    return Given({**roles, "dataset": folder(str(photos), FolderOptions())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, nargs=2, default=[256, 768], help="of a short run and of a long one")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--slots", type=int, default=2 * GPU_BATCH)
    parser.add_argument("--control", choices=ARMS, default="both", help="time runs with the control arm, without it, or both")
    parser.add_argument("--compile", action="store_true", help="as a run of many images does")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    if asked.images[0] >= asked.images[1]:
        parser.error(f"--images takes the short run first, got {asked.images[0]} and {asked.images[1]}")
    store_layout.PACKED_FROM = 0  # few images stand for many
    with tempfile.TemporaryDirectory(prefix="fmr-whole-") as place:
        for count in asked.images:
            photographs(Path(place) / f"{count} pictures", count)
        compared(parts(asked.device, small=asked.small), Path(place), asked)


if __name__ == "__main__":
    main()
