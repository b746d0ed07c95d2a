"""Finds an autoencoder's files: a folder in diffusers layout, here or on the Hugging Face hub, safetensors only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import BadWeights
from counterfoil.weights import hub_access

CONFIG = "config.json"
WEIGHTS = "diffusion_pytorch_model.safetensors"
PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")


@dataclass(frozen=True)
class Checkpoint:
    """A configuration, and weights that are safe to read."""

    folder: Path
    config: dict[str, Any]
    weights: Path


def find(name: str, *, revision: str | None = None, subfolder: str | None = None) -> Checkpoint:
    """The checkpoint in a local folder, or of a hub id such as `stabilityai/sd-vae-ft-mse`."""
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix in PICKLES:
            raise _pickle(path)
        raise BadWeights(f"{path}: is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    folder = path if name and path.is_dir() else _download(name, revision=revision, subfolder=subfolder)
    return _open(folder / subfolder if subfolder else folder)


def _open(folder: Path) -> Checkpoint:
    config, weights = folder / CONFIG, folder / WEIGHTS
    if not config.is_file():
        raise BadWeights(f"{folder}: no {CONFIG} in it; give a folder in diffusers layout, or subfolder= if it lies deeper")
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{config}: cannot be read as JSON ({error}); download it again") from None
    if not isinstance(values, dict):
        raise BadWeights(f"{config}: a configuration is a JSON object, got {type(values).__name__}; download it again")
    if not weights.is_file():
        for other in sorted(folder.iterdir()):
            if other.suffix in PICKLES:
                raise _pickle(other)
        raise BadWeights(f"{folder}: no {WEIGHTS} in it; weights are read from that one file, and from no pickle")
    return Checkpoint(folder, values, weights)


def _pickle(path: Path) -> BadWeights:
    return BadWeights(
        f"{path}: is a pickle, which can run code when it is read; convert it once where that does no harm: read it with "
        f"torch.load(…, weights_only=True) and write it with safetensors.torch.save_file to {WEIGHTS} in the same folder"
    )


def _download(name: str, *, revision: str | None, subfolder: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    prefix = f"{subfolder}/" if subfolder else ""
    with hub_access(name, prefix + WEIGHTS):
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=[prefix + CONFIG, prefix + WEIGHTS]))
        except HFValidationError:
            raise BadWeights(f"{name!r}: no such folder, and not a hub id such as stabilityai/sd-vae-ft-mse") from None
