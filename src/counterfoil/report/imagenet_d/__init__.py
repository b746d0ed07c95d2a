"""The page about ImageNet-D runs: who finds the set hard, what surrogates have to do with it, and what mistakes follow."""

from __future__ import annotations

from counterfoil.report.imagenet_d.writing import write

__all__ = ["write"]
