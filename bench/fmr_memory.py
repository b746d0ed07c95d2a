"""What the engine does on a GPU whose memory is short: images at a time, recomputation, and going on after running out.

    python -m bench.fmr_memory [--free 100 24 8 4] [--images 32] [--keep NAME]

The set-up of `bench/fmr_setup.py`, a few steps. All but `--free` GiB of the card are taken by something else; then the engine
sizes itself, or is told to take 64 images at a time whatever the memory. Every image must come out, every time.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from bench.card import clear
from bench.fmr_setup import jobs, parts
from bench.results import add_keep, command, keep

from counterfoil.core.errors import RunFailed
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.scheduler import Engine

GIB = 2**30
STEPS = 3


def tried(given: Any, images: int, free: float, layout: EngineSpec) -> dict[str, Any]:
    """One short run with so much memory left."""
    clear("cuda")
    ballast = torch.empty(max(int(torch.cuda.mem_get_info()[0] - free * GIB), 0), dtype=torch.uint8, device="cuda")
    engine = Engine(
        given.model, given.generator, given.oracle, columns=list(range(1000)), search=SearchSpec(budget=STEPS, control="none"),
        layout=layout, device="cuda", acceleration=Acceleration("bf16", fused=True, graphs=True),
    )  # fmt: skip
    began = time.perf_counter()
    try:
        done = len(list(engine.run(jobs(images, given.size))))
        ended = "all images out" if done == images else f"{done} of {images} images out"
    except RunFailed as error:
        ended = str(error)
    took = time.perf_counter() - began
    del ballast
    return {
        "free GiB": free, "asked": layout.batch_size or "what fits", "tile at the end": engine.batch_size,
        "seconds": round(took, 1), "ended": ended,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--free", type=float, nargs="+", default=[100.0, 24.0, 8.0, 4.0])
    parser.add_argument("--images", type=int, default=32)
    add_keep(parser)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("fmr_memory is about the memory of a GPU, and there is none here")
    given = parts("cuda", small=False)
    rows = []
    for free in asked.free:
        for layout in (EngineSpec(precision="bf16"), EngineSpec(precision="bf16", slots=128, batch_size=64)):
            rows.append(tried(given, asked.images, free, layout))
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if asked.keep:
        about = f"The engine on a GPU with so much memory left: images at a time, and whether all {asked.images} came out."
        keep(asked.keep, rows, command=command("bench.fmr_memory"), about=about)
    sys.exit(any(row["ended"] != "all images out" for row in rows))


if __name__ == "__main__":
    main()
