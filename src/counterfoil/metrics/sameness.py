"""Whether runs are the same test of different models: which settings, data and parts differ between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UsageError
from counterfoil.store import Run
from counterfoil.store.files import key_of

_FREE = (
    "model", "models", "others", "chats", "device", "strict", "limit",
    "engine.slots", "engine.tile", "engine.memory_format", "engine.part_images",
)  # fmt: skip
"""What may differ: the model, how many images (only those in common are compared), and what changes no number."""


def differences(runs: Sequence[Run]) -> list[str]:
    """What differs between the runs beside the model, as `search.step (0.01 / 0.1)`; empty for the same test."""
    every = [described(run) for run in runs]
    found = []
    for key in dict.fromkeys(key for values in every for key in values):
        values = list(dict.fromkeys(_text(each.get(key)) for each in every))
        if len(values) > 1:
            found.append(f"{key} ({' / '.join(values)})")
    return found


def check_sources(runs: Sequence[Run], keys: NDArray[np.uint64]) -> str:
    """Nothing if the runs saw the same source pictures; else how many differ. UsageError if the ids mean other pictures."""
    hashes = [_source_hashes(run) for run in runs]
    known = [int(key) for key in keys if all(int(key) in each for each in hashes)]
    other = sum(len({each[key] for each in hashes}) > 1 for key in known)
    sizes = {run.provenance.get("size") for run in runs}
    if known and other == len(known) and len(sizes) == 1:
        paths = ", ".join(str(run.path) for run in runs)
        raise UsageError(f"{paths}: the same image ids stand for other pictures; compare runs over the same data")
    return f"pixels of {other} of {len(known)} source images" if other else ""


def described(run: Run) -> dict[str, Any]:
    """Everything that makes it the test it is, by dotted key."""
    spec = {key: value for key, value in _flat(run.spec) if not any(key == each or key.startswith(f"{each}.") for each in _FREE)}
    parts = run.provenance.get("parts", {})
    weights = {f"{role} weights": parts.get(role, {}).get("weights") for role in ("generator", "oracle")}
    return {**spec, **weights, "picture size": run.provenance.get("size"), "classes": list(run.classes)}


def _source_hashes(run: Run) -> dict[int, str]:
    found = {}
    for batch in run.table("trials", columns=["image_id", "arm", "source_sha256"]):
        for image_id, arm, digest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if arm in ("guided", "source") and digest:
                found[int(key_of(image_id))] = digest
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, Mapping):
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
