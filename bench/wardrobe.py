"""Scenes a second that the lab's world draws, against drawing them one at a time.

    python -m bench.wardrobe [--device cpu] [--count 4096] [--batch 256] [--keep NAME]

Attributes are sampled and scenes rendered with their masks, garments of the report split, the full distribution. On a CPU torch
has the threads that it takes by itself, or those of OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from bench.results import keep

from counterfoil.core.process import keep_freed_memory
from counterfoil.engine.device import synchronize
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import Garments, sample, shipped

ALONE = 64  # scenes that are drawn one at a time: they take the same time each


def drawn(garments: Garments, count: int, batch: int, device: str) -> float:
    """Scenes a second."""
    _batch(garments, batch, 0, device)
    synchronize(device)
    began = time.perf_counter()
    for at in range(0, count, batch):
        _batch(garments, batch, at, device)
    synchronize(device)
    return count / (time.perf_counter() - began)


def _batch(garments: Garments, batch: int, seed: int, device: str) -> None:
    render(sample(batch, garments=garments, distribution="full", seed=seed, device=device), garments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--keep", metavar="NAME", help="write the rows to bench/results/NAME.json")
    given = parser.parse_args()
    keep_freed_memory()  # as a run does
    garments = shipped("report").to(given.device)
    with torch.no_grad():
        alone = drawn(garments, ALONE, 1, given.device)
        together = drawn(garments, given.count, given.batch, given.device)
    rows = [
        {"what": "one at a time", "scenes a second": round(alone), "times": 1.0},
        {"what": f"{given.batch} at a time", "scenes a second": round(together), "times": round(together / alone, 1)},
    ]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if given.keep:
        about = f"The lab's renderer on {given.device}, {torch.get_num_threads()} threads."
        keep(given.keep, rows, command=f"python -m bench.wardrobe {' '.join(sys.argv[1:])}".strip(), about=about)


if __name__ == "__main__":
    main()
