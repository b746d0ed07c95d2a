"""What one training run is given: the machine, the time, the seed and the folders."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from counterfoil.lab.garments import Garments, from_idx

Earlier = dict[str, Path | None]
"""Models that a recipe builds on: the folder of each, or None for one that is done without."""


@dataclass(frozen=True)
class Run:
    """One training run, from a seed to a folder with the trained model."""

    name: str
    """The recipe's name."""
    out: Path
    """The folder the model is written to, one folder a model."""
    weights: tuple[Path, ...] = ()
    """Folders with models trained before this one, for recipes that build on them; the first that has a model gives it."""
    data: Path | None = None
    """The folder with the Fashion-MNIST idx files; None for where the lab looks by itself."""
    device: str = "cpu"
    minutes: float | None = None
    """How long to train; the schedule is then stretched over that time instead of over its steps."""
    seed: int = 0
    compiles: bool = False
    """Whether the costly modules go through torch.compile: worth its minute on a GPU only."""
    resumes: bool = False
    """Whether to go on from the weights already in `out`."""
    note: str = ""
    """What the model's card should say of this run besides."""

    def garments(self) -> Garments:
        """The shapes to train on: those of Fashion-MNIST's training split, never those of the test split."""
        return from_idx(self.data, "train").to(self.device)

    def find(self, name: str) -> Path | None:
        """The folder of a model trained before."""
        folders = (folder / name for folder in self.weights)
        return next((found for found in folders if any((found / file).is_file() for file in _CONFIGURATIONS)), None)

    def earlier(self, *names: str) -> Earlier:
        """The folders of models to build on; one that is nowhere is done without, and a warning says so."""
        found = {name: self.find(name) for name in names}
        for name in (name for name, folder in found.items() if folder is None):
            print(f"counterfoil: warning: no trained {name} to build on; {self.name} is trained without it", file=sys.stderr)
        return found

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


_CONFIGURATIONS = ("config.json", "model_index.json")
"""A folder with one of these is a model; a painter's without its index is only the autoencoder of one to come."""


def prepare_torch(seed: int) -> None:
    """Set the seeds and the fast arithmetic that training tolerates."""
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
