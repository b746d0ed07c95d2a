"""Finds and reads the two files of a VQGAN: the weights and, beside them, the YAML configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators import locations

WEIGHTS = ("*.safetensors", "*.ckpt", "*.pt", "*.pth")
TRAINING_ONLY = ("loss.", "colorize", "model_ema.")  # in the checkpoint, but no part of the autoencoder


class _Absent:
    """Stands for a class that a checkpoint names and nobody needs. Nothing of it is ever made or called."""


# Lightning writes the settings of its callbacks beside the weights, under the callbacks' own classes. torch refuses to
# name any class when it reads weights only; these are read as names of something that does nothing.
_LIGHTNING: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_Absent, f"{package}.callbacks.{module}")
    for package in ("pytorch_lightning", "lightning.pytorch")
    for module in ("model_checkpoint.ModelCheckpoint", "early_stopping.EarlyStopping", "base.Callback")
]


def find(place: str, *, config: str | None, sha256: str | None) -> tuple[Path, Path]:
    """The weight file and the configuration: `place` is a file, a folder, a hub file or a URL."""
    folder = Path(place).expanduser()
    if place and folder.is_dir():
        file = _only(folder, WEIGHTS, also=folder / "checkpoints", what="weight file", option="the file itself")
        if sha256 is not None:
            weights.check_hash(file, sha256)
    else:
        file = locations.locate(place, sha256=sha256)
    if config is not None:
        return file, locations.locate(config)
    here = file.parent
    beside = folder / "configs" if folder.is_dir() else here.parent / "configs"  # as the authors' training leaves them
    return file, _only(here, ("*.yaml", "*.yml"), also=beside, what="configuration (.yaml)", option="config=")


def load(file: Path) -> dict[str, Tensor]:
    """The autoencoder's tensors by name."""
    with torch.serialization.safe_globals(_LIGHTNING):
        state = weights.load_state(file)
    return {name: value for name, value in state.items() if not name.startswith(TRAINING_ONLY)}


def _only(folder: Path, patterns: tuple[str, ...], *, also: Path, what: str, option: str) -> Path:
    """The one file of its kind in a folder, or else in another one."""
    for place in (folder, also):
        found = sorted(path for pattern in patterns for path in place.glob(pattern) if path.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            raise BadWeights(f"{place}: holds {found[0].name} and {found[1].name}; say which {what} to use: give {option}")
    raise BadWeights(f"{folder}: no {what} in it or in {also}; give {option}")
