"""Networks in diffusers layout: a folder here or on the Hugging Face hub, safetensors only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch

from counterfoil.core.errors import BadWeights, one_line
from counterfoil.parts import diffusers_loading
from counterfoil.parts import weights as files
from counterfoil.parts.weights import hub_access

CONFIG = "config.json"
WEIGHTS = "diffusion_pytorch_model.safetensors"
PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")


@dataclass(frozen=True)
class Checkpoint:
    """A configuration, and weights that are safe to read."""

    folder: Path
    config: dict[str, Any]
    weights: Path


class Network:
    """A network of diffusers that is only asked: frozen, with the hash of the file it came from."""

    def __init__(self, network: Any, *, sha256: str = "") -> None:
        self.network = network.eval().requires_grad_(False)
        self.sha256 = sha256

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        self.network.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The network's class, the hash of its weights and the library that runs it."""
        library = f"diffusers {version('diffusers')}"
        return {"network": type(self.network).__name__, "weights": self.sha256, "library": library}


def find(name: str, *, revision: str | None = None, subfolder: str | None = None) -> Checkpoint:
    """The checkpoint in a local folder, or of a hub id such as `stabilityai/sd-vae-ft-mse`."""
    prefix = f"{subfolder}/" if subfolder else ""
    folder = folder_of(name, [prefix + CONFIG, prefix + WEIGHTS], revision=revision)
    return open_folder(folder / subfolder if subfolder else folder)


def folder_of(name: str, wanted: Sequence[str], *, revision: str | None = None) -> Path:
    """The local folder `name`, or the one into which the `wanted` files of that hub id were downloaded."""
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix in PICKLES:
            raise _pickle(path)
        raise BadWeights(f"{path}: is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    return path if name and path.is_dir() else _download(name, wanted, revision=revision)


def load(found: Checkpoint, sha256: str | None = None) -> Any:
    """The network in float32, every one of its weights from the file."""
    import diffusers

    files.load_state(found.weights, sha256)  # a wrong hash or a broken file is named before the library sees it
    with files.loading(found.weights), diffusers_loading.quiet():
        network, report = getattr(diffusers, found.config["_class_name"]).from_pretrained(
            str(found.folder),
            use_safetensors=True,
            local_files_only=True,
            low_cpu_mem_usage=False,  # otherwise it asks for accelerate, and files of this size gain nothing from it
            torch_dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        keys = sorted(_described(key) for key in report[problem])
        if keys:  # the library would go on, with random numbers in the missing places
            raise BadWeights(
                f"{found.weights}: {len(keys)} {problem.replace('_', ' ')}, {keys[0]} among them; "
                "config.json and weights do not belong together"
            )
    return network


def _described(key: Any) -> str:
    """A weight's name, with the two shapes where it has another than the network's."""
    if not isinstance(key, tuple):
        return str(key)
    name, *shapes = key
    return f"{name} ({' for '.join('×'.join(map(str, shape)) for shape in shapes)})"


def open_folder(folder: Path) -> Checkpoint:
    """The checkpoint that lies in a folder."""
    config, weights = folder / CONFIG, folder / WEIGHTS
    if not config.is_file():
        raise BadWeights(f"{folder}: no {CONFIG} in it; give a folder in diffusers layout, or subfolder= if it lies deeper")
    values = read_json(config)
    if not weights.is_file():
        for other in sorted(folder.iterdir()):
            if other.suffix in PICKLES:
                raise _pickle(other)
        raise BadWeights(f"{folder}: no {WEIGHTS} in it; weights are read from that one file, and from no pickle")
    return Checkpoint(folder, values, weights)


def read_json(path: Path) -> dict[str, Any]:
    """A configuration: one JSON object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path}: cannot be read as JSON ({one_line(error)}); download it again") from None
    if not isinstance(values, dict):
        raise BadWeights(f"{path}: a configuration is a JSON object, got {type(values).__name__}; download it again")
    return values


def _pickle(path: Path) -> BadWeights:
    return BadWeights(
        f"{path}: is a pickle, which can run code when it is read; convert it once where that does no harm: read it with "
        f"torch.load(…, weights_only=True) and write it with safetensors.torch.save_file to {WEIGHTS} in the same folder"
    )


def _download(name: str, wanted: Sequence[str], *, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    with hub_access(name, wanted[-1]):
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted)))
        except HFValidationError:
            raise BadWeights(f"{name!r}: no such folder, and not a hub id such as stabilityai/sd-vae-ft-mse") from None
