"""The page about LANCE runs: factors, classes, biases with example pairs, and what was turned away on the way."""

from __future__ import annotations

from counterfoil.report.lance.writing import write

__all__ = ["write"]
