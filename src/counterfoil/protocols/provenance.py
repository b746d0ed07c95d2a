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

from counterfoil.core.spec.base import RunSpec
from counterfoil.engine.scheduler import Engine
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, provenance_of
from counterfoil.protocols.assembly import Assembly

LIBRARIES = ("counterfoil", "torch", "torchvision", "timm", "transformers", "diffusers", "open_clip_torch", "numpy", "pillow")


def gather(assembly: Assembly, engine: Engine) -> dict[str, Any]:
    """Everything that someone who wants the same numbers again has to know beside the specification."""
    return with_data(of_parts(assembly, engine), assembly.dataset)


def of_parts(assembly: Assembly, engine: Engine) -> dict[str, Any]:
    """The same without the data."""
    parts = {"model": assembly.model, "generator": assembly.generator, "oracle": assembly.oracle}
    caution = {"caution": assembly.caution} if assembly.caution else {}
    account = describe(parts, assembly.spec, size=assembly.size, device=assembly.spec.device)
    return {
        **caution,
        **account,
        "hardware": {**account["hardware"], **working(engine)},
        "guidance": type(engine.arms()["guided"]).__name__,  # what `auto` came to
    }


def working(engine: Engine) -> dict[str, Any]:
    """What an engine came to by itself that the last digits depend on; on a processor they do not."""
    if engine.device.type == "cpu":
        return {}
    return {"batch_size": engine.batch_size, "compiled": engine.step.acceleration.compile}


def describe(parts: Mapping[str, Any], spec: RunSpec, *, size: int, device: str) -> dict[str, Any]:
    """Versions, hashes and hardware for a run over these parts, which `spec` names."""
    own = registry.function_hashes(spec.model_dump(mode="json"))
    return {
        "versions": versions(),
        "code": _source_hash(),
        **({"functions": own} if own else {}),
        "size": size,
        "parts": {role: part.provenance() for role, part in parts.items() if hasattr(part, "provenance")},
        "hardware": _hardware(device),
    }


def with_data(account: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """What is said of a run's parts, and of its data set as one of them."""
    own = {"dataset": provenance_of(dataset)} if hasattr(dataset, "provenance") else {}
    return {**account, **of_data(dataset), "parts": {**account["parts"], **own}}


def of_data(dataset: Dataset) -> dict[str, Any]:
    """How many images a run is about, and one hash over their ids and labels; every trial keeps the hash of its own pixels."""
    digest = hashlib.sha256()
    for sample in dataset:
        digest.update(f"{sample.image_id}\0{sample.label}\n".encode())
    return {"data": digest.hexdigest(), "images": len(dataset)}


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
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
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
