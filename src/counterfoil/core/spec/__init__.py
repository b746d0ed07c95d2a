"""A run's specification: everything that decides its numbers, as plain data that can be written down and read back.

One class per protocol, over a shared base; `protocol` in the values selects it (`counterfoil.protocols.parse`).
"""

from __future__ import annotations

from counterfoil.core.spec.base import EngineSpec, Part, PartSpec, RunSpec, StagesSpec
from counterfoil.core.spec.fmr import FmrSpec, SearchSpec
from counterfoil.core.spec.imagenet_d import ImagenetDSpec, MiningSpec, QuestionSpec
from counterfoil.core.spec.lance import EditSpec, LanceSpec, QualitySpec
from counterfoil.core.spec.reading import part, read, sections

__all__ = [
    "EditSpec", "EngineSpec", "FmrSpec", "ImagenetDSpec", "LanceSpec", "MiningSpec", "Part", "PartSpec", "QualitySpec",
    "QuestionSpec", "RunSpec", "SearchSpec", "StagesSpec",
    "part", "read", "sections",
]  # fmt: skip
