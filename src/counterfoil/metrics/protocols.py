"""The numbers of a run and their words, whatever its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from counterfoil.core.errors import BadRun
from counterfoil.store import Run

HOMES = {
    "fmr": ("counterfoil.metrics.fmr", "fmr_results", "counterfoil.metrics.table", "text"),
    "lance": ("counterfoil.metrics.lance", "lance_results", "counterfoil.metrics.lance_table", "text"),
    "imagenet-d": ("counterfoil.metrics.imagenet_d", "results", "counterfoil.metrics.imagenet_d", "table_text"),
}
"""For each protocol: where its results come from, and what puts them in words."""


def protocol_of(run: Run) -> str:
    """The protocol a run was made by."""
    name = str(run.spec.get("protocol", "fmr"))
    if name not in HOMES:
        raise BadRun(f"{run.path}: a run of protocol {name!r}, which this version does not know; there are {', '.join(HOMES)}")
    return name


def results_of(run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """A run's results: the stored ones, or worked out for another model or oracle."""
    stored = run.results if model is None and oracle is None else None
    return stored if stored is not None else worked_out(run, model=model, oracle=oracle)


def worked_out(run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """A run's results by what its tables say now."""
    module, name, _, _ = HOMES[protocol_of(run)]
    found: dict[str, Any] = getattr(import_module(module), name)(
        run, seed=int(run.spec.get("seed", 0)), model=model, oracle=oracle
    )
    return found


def text_of(run: Run, results: Mapping[str, Any]) -> str:
    """Results as plain text."""
    _, _, module, name = HOMES[protocol_of(run)]
    words: str = getattr(import_module(module), name)(results)
    return words
