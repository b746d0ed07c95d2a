"""What one training run is given: the machine, the time, the seed and the folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from counterfoil.lab.garments import Garments, from_idx


@dataclass(frozen=True)
class Run:
    """One training run, from a seed to a folder with the trained model."""

    out: Path
    """The folder the model is written to, one folder a model."""
    data: Path
    """The folder with the Fashion-MNIST idx files."""
    weights: Path
    """The folder with the models trained before this one, for recipes that build on them."""
    device: str = "cpu"
    steps: int | None = None
    """How many steps to take; the recipe's own number if None. `minutes` goes before it."""
    minutes: float | None = None
    """How long to train; the schedule is then stretched over that time instead of over the steps."""
    batch: int | None = None
    seed: int = 0
    compiles: bool = False
    """Whether the costly modules go through torch.compile: worth its minute on a GPU only."""
    resumes: bool = False
    """Whether to go on from the weights already in `out`."""
    begun: float = field(default_factory=time.monotonic)

    def garments(self) -> Garments:
        """The shapes to train on: those of Fashion-MNIST's training split, never those of the test split."""
        return from_idx(self.data, "train").to(self.device)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A module or function as the training step should call it."""
        if not self.compiles:
            return work
        # Small networks wait for their kernels to be launched: what is compiled is also recorded and replayed.
        return torch.compile(work, dynamic=False, mode="reduce-overhead" if self.on_gpu else None)

    @property
    def on_gpu(self) -> bool:
        """Whether this is CUDA."""
        return torch.device(self.device).type == "cuda"

    def autocast(self) -> torch.autocast:
        """Half precision where it pays: bfloat16 on a GPU, nothing on a CPU."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False)

    def write_json(self, name: str, value: Any) -> None:
        """Put a small record beside the weights."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def prepare_torch(seed: int) -> None:
    """Set the seeds and the fast arithmetic that training tolerates."""
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
