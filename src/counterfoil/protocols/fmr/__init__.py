"""The FMR protocol (foundation-model-oriented robustness, Zhang et al.)."""

from __future__ import annotations

from counterfoil.protocols.fmr.running import run

__all__ = ["run"]
