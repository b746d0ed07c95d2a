"""Size and speed of the tested model: `speed.json` in a run directory.

Kept apart from the results, which are the same on every machine; this is not. Models behind an address are not timed: each
image may cost money there, and the time would be the network's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.engine.device import synchronize
from counterfoil.parts.contracts import Model
from counterfoil.parts.weights import modules_of
from counterfoil.store.files import canonical, write_whole, writing

NAME = "speed.json"
SECONDS = 0.3  # spent on timing, after a first call that is not counted
FEWEST, MOST = 3, 20  # calls that are timed
_REMOTE = ("http:", "https:")


def record(model: Model, name: str, out: Path, *, size: int, device: str) -> None:
    """Measure the model once and keep the figures in the run's directory; a resumed run keeps those it has."""
    if (out / NAME).exists():
        return
    figures: dict[str, Any] = {"parameters": parameters(model), **_machine(device)}
    if not name.startswith(_REMOTE):
        batch = 8 if torch.device(device).type == "cpu" else 32
        pictures = torch.full((batch, 3, size, size), 0.5, device=device)
        figures |= {"images_per_second": images_per_second(model, pictures), "batch": batch, "size": size}
    with writing(out):
        write_whole(out / NAME, canonical(figures))


def parameters(model: Any) -> int | None:
    """Number of a model's weights, each counted once; None where they can't be seen."""
    found = {each.data_ptr(): each.numel() for module in modules_of(model) for each in module.parameters()}
    return sum(found.values()) if found else None


def images_per_second(model: Model, pictures: Tensor, *, seconds: float = SECONDS) -> float:
    """Images classified per second, without gradients: from the fastest of several calls, as all else only adds to a time."""
    times: list[float] = []
    with torch.no_grad():
        model.logits(pictures)
        while len(times) < FEWEST or (sum(times) < seconds and len(times) < MOST):
            synchronize(pictures.device)
            begun = time.perf_counter()
            model.logits(pictures)
            synchronize(pictures.device)
            times.append(time.perf_counter() - begun)
    return len(pictures) / max(min(times), 1e-9)


def _machine(device: str) -> dict[str, Any]:
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else kind
    return {"device": name, "threads": torch.get_num_threads()}
