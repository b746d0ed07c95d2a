"""What a run was made with: versions, hashes and hardware, for `run.json`."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from counterfoil.assembly import Assembly
from counterfoil.parts import Dataset

LIBRARIES = ("counterfoil", "torch", "torchvision", "timm", "transformers", "diffusers", "open_clip_torch", "numpy", "pillow")


def gather(assembly: Assembly) -> dict[str, Any]:
    """Everything that someone who wants the same numbers again has to know beside the specification."""
    parts = {"model": assembly.model, "dataset": assembly.dataset, "generator": assembly.generator, "oracle": assembly.oracle}
    caution = {"caution": assembly.caution} if assembly.caution else {}
    return {
        **caution,
        **describe(parts, assembly.dataset, size=assembly.size, device=assembly.spec.device),
        "guidance": type(assembly.engine().arms()["guided"]).__name__,  # what `auto` came to
    }


def describe(parts: Mapping[str, Any], dataset: Dataset | None, *, size: int, device: str) -> dict[str, Any]:
    """Versions, hashes and hardware for a run over these parts."""
    data = {"data": _data_hash(dataset), "images": len(dataset)} if dataset is not None else {}
    return {
        "versions": versions(),
        "code": _source_hash(),
        **data,
        "size": size,
        "parts": {role: part.provenance() for role, part in parts.items() if hasattr(part, "provenance")},
        "hardware": _hardware(device),
    }


def versions(libraries: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Python's version and those of the libraries that are installed; by default of those that decide a number."""
    found = {"python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _source_hash() -> str:
    """One hash over the package's Python files, so that two runs of different code can be told apart."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _data_hash(dataset: Dataset) -> str:
    """One hash over ids and labels; every trial keeps the hash of its own pixels."""
    digest = hashlib.sha256()
    for sample in dataset:
        digest.update(f"{sample.image_id}\0{sample.label}\n".encode())
    return digest.hexdigest()


def _hardware(device: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    if torch.device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts
