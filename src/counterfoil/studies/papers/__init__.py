"""Published tables as data, to set runs beside. Where a paper gives two values for one thing, both are kept."""

from __future__ import annotations

from counterfoil.studies.papers.tables import Paper, Published, load

__all__ = ["Paper", "Published", "load"]
