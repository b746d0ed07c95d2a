"""What a mask saves on this machine, part by part of a guided step.

    python bench/sparse.py MASK [--generator lab:vqgan] [--model lab:narrow] [--rounds 12] [--device cpu]

`counterfoil study sparse` fits masks, and says what becomes of FMR.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from counterfoil import registry
from counterfoil.sparse import load
from counterfoil.sparse.saving import PARTS, measure

ROWS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mask", type=Path)
    parser.add_argument("--generator", default="lab:vqgan")
    parser.add_argument("--model", default="lab:narrow")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    mask = load(asked.mask)
    generator = registry.create("generator", asked.generator).to(asked.device)
    model = registry.create("model", asked.model).to(asked.device)
    data = registry.create("dataset", "lab:wardrobe", {"count": ROWS})
    images = torch.stack([data.load(sample, generator.size or 64) for sample in data]).to(asked.device)
    found = measure(generator, mask, model, images, rounds=asked.rounds)
    print(
        f"{int(mask.kept.sum())} of {mask.kept.numel()} coordinates kept ({mask.sparsity:.2f} % sparse), {ROWS} pictures a step"
    )
    for place, part in enumerate(PARTS):
        dense, sparse = (1000 * np.median(rows[:, place]) for rows in (found.dense, found.sparse))
        print(f"  {part:<15} all {dense:8.2f} ms   kept {sparse:8.2f} ms")
    low, middle, high = found.ratio
    print(f"  kept / all, whole step: {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {asked.rounds} steps of each in turn)")


if __name__ == "__main__":
    main()
