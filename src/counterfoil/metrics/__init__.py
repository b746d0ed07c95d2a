"""Metrics: records in, `Estimate(value, low, high, n)` out. Pure functions, without torch."""

from __future__ import annotations

from counterfoil.metrics.estimate import Estimate
from counterfoil.metrics.fmr import fmr_results, scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes

__all__ = ["Estimate", "Outcomes", "fmr_results", "read_outcomes", "scores"]
