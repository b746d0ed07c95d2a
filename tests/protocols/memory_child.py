"""Runs the FMR protocol over many small images and prints the peak memory of the process in MiB."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

from counterfoil import protocols
from tests.worlds import spec

torch.set_num_threads(1)
data, out = sys.argv[1:]
protocols.run(
    spec(f"tensors:{data}", size=8, search={"budget": 1, "step": 0.5, "control": False}, engine={"slots": 64, "batch_size": 64}),
    Path(out),
)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
