"""Mining: which painted pictures are hard, show what they should, and are not alike. No torch here.

The same function that mines a run's set also answers what would have been kept without one of the surrogates.
"""

from __future__ import annotations

from counterfoil.metrics.mining.candidates import Candidate, Look
from counterfoil.metrics.mining.selection import Decision, select

__all__ = ["Candidate", "Decision", "Look", "select"]
