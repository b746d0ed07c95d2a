"""Seconds of whole FMR runs of 8, 400 and 800 images, read from a folder and stored, and of the engine alone.

    python -m bench.fmr_whole [--device cuda] [--images 8 400 800] [--iterations 50] [--controls none path]
                              [--compile] [--keep NAME]

The parts are those of bench/setup.py. The images are JPEG files of 500 × 375 pixels with the spectrum of photographs. The
engine alone has them in memory and writes nothing; the whole run tries the parts, reads, climbs, makes PNG files, and commits
records and images to a store, in packs as one over ImageNet does.

Images are stored behind the engine's back, so that the moment at which one is stored says little about the pace. Seconds per
image are therefore what the longest run takes more than the next one; choosing and capturing kernels is in both and falls out,
and a first run that is not timed compiles. It fails if a climb did not take all iterations. `--small` takes tiny networks, to
rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from bench.results import add_keep, command, keep
from bench.setup import Parts, clear, parts, photographs

from counterfoil import protocols
from counterfoil.engine.device import GPU_BATCH, synchronize
from counterfoil.parts.datasets.files import FolderOptions, folder
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.fmr.climbing import ClimbingSpace
from counterfoil.protocols.workspace import Given
from counterfoil.store import layout as store_layout
from counterfoil.store import open_run

CLASSES = [f"thing {number}" for number in range(16)]
COVERS = ["src/counterfoil/engine", "src/counterfoil/parts/fast", "src/counterfoil/protocols", "src/counterfoil/store"]


def spec_of(asked: argparse.Namespace, *, control: str, iterations: int) -> FmrSpec:
    return FmrSpec.model_validate(
        {
            **{role: f"bench:{role}" for role in ("model", "data", "generator", "oracle")},
            "device": asked.device,
            "search": {"budget": iterations, "control": control},
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


def compare(networks: Parts, folder: Path, asked: argparse.Namespace) -> None:
    """The engine alone and whole runs, with every kind of control."""
    rows: list[dict[str, Any]] = []
    counts = sorted(asked.images)
    for control in asked.controls:
        engine_alone(given_parts(networks, folder / f"{counts[-1]} images"), spec_of(asked, control=control, iterations=2))
        spec = spec_of(asked, control=control, iterations=asked.iterations)  # compiled by now
        for whole in (False, True):
            seconds = {}
            for count in counts:
                clear(asked.device)
                given, out = given_parts(networks, folder / f"{count} images"), folder / f"run of {count}, {control}"
                seconds[count] = whole_run(given, spec, out) if whole else engine_alone(given, spec)
            row: dict[str, Any] = {"what": "whole run" if whole else "engine alone", "control": control}
            row |= {f"seconds for {count} images": took for count, took in seconds.items()}
            if len(counts) > 1:
                row["seconds per image"] = (seconds[counts[-1]] - seconds[counts[-2]]) / (counts[-1] - counts[-2])
            if whole:
                row["MB stored per image"] = (
                    sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6 / counts[-1]
                )
            if asked.device == "cuda":
                row["GiB"] = torch.cuda.max_memory_allocated() / 2**30
            rows.append(row)
            print("  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items()))
            write(rows, asked)


def write(rows: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """Return what there is so far."""
    if asked.keep:
        networks = "tiny networks, a rehearsal" if asked.small else "VQGAN f16-16384 at 256 px, ResNet-50 and CLIP ViT-B/32"
        about = (
            f"FMR with {networks}, random weights, {asked.iterations} iterations, images from a folder and all records and "
            "images stored, and the engine alone; seconds per image are what the longest run takes more than the next one."
        )
        keep(asked.keep, rows, command=command("bench.fmr_whole"), about=about, covers=COVERS)


def given_parts(networks: Parts, photos: Path) -> Given:
    roles = {"model": networks.model, "generator": networks.generator, "oracle": networks.oracle}
    return Given({**roles, "dataset": folder(str(photos), FolderOptions())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, nargs="+", default=[8, 400, 800])
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--slots", type=int, default=2 * GPU_BATCH)
    parser.add_argument("--controls", nargs="+", choices=("none", "path", "distance"), default=["none", "path"])
    parser.add_argument("--compile", action="store_true", help="as a run of many images does")
    parser.add_argument("--small", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    store_layout.PACKED_FROM = 0  # few images stand for many
    with tempfile.TemporaryDirectory(prefix="fmr-whole-") as place:
        for count in asked.images:
            photographs(Path(place) / f"{count} images", count, CLASSES)
        compare(parts(asked.device, small=asked.small), Path(place), asked)


if __name__ == "__main__":
    main()
