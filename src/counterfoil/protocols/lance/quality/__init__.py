"""Quality control of edited pictures: how well a picture and a caption changed together, and which of a sweep is kept."""

from __future__ import annotations

from counterfoil.protocols.lance.quality.rule import CHECKS, Chosen, Similarities, choose

__all__ = ["CHECKS", "Chosen", "Similarities", "choose"]
