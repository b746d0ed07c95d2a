"""Counterfoil stress-tests image classifiers with images made for the occasion.

    import counterfoil
    run = counterfoil.evaluate("timm:resnet50", "photos/", generator="autoencoder:vqgan/", oracle="clip:my-clip/")
    print(run.scores["FMR"])
    done = counterfoil.check("model.pth", "photos/")  # everything else is chosen

The names below are loaded on first use, so that reading results needs neither torch nor a GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.core.errors import CounterfoilError
    from counterfoil.core.records import Prediction, Trial, Verdict
    from counterfoil.core.spec import RunSpec
    from counterfoil.doctor.check import check
    from counterfoil.protocols.evaluate import evaluate
    from counterfoil.protocols.reading import Run, open_run

_HOMES = {
    "CounterfoilError": "counterfoil.core.errors",
    "Prediction": "counterfoil.core.records",
    "Run": "counterfoil.protocols.reading",
    "RunSpec": "counterfoil.core.spec",
    "Trial": "counterfoil.core.records",
    "Verdict": "counterfoil.core.records",
    "check": "counterfoil.doctor.check",
    "evaluate": "counterfoil.protocols.evaluate",
    "open_run": "counterfoil.protocols.reading",
}

__all__ = ["CounterfoilError", "Prediction", "Run", "RunSpec", "Trial", "Verdict", "check", "evaluate", "open_run"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
