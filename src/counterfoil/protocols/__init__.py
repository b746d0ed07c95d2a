"""The protocols: thin declarations over parts, engine, stages and store."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from counterfoil.core.spec import RunSpec
from counterfoil.store import Run

RUNNERS = {
    "fmr": "counterfoil.protocols.fmr.running",
    "lance": "counterfoil.protocols.lance",
    "imagenet-d": "counterfoil.protocols.imagenet_d",
}
"""The module of each protocol; its `run` takes a specification and a folder."""


def run(spec: RunSpec, out: Any, **options: Any) -> Run:
    """Run a specification of any protocol."""
    finished: Run = import_module(RUNNERS[spec.protocol]).run(spec, out, **options)
    return finished
