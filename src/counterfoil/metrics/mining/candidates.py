"""What mining knows of a painted picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What one model made of a picture."""

    right: bool
    confidence: float  # probability of its answer
    truth: float  # probability of the right one
    predicted: int = -1  # in the set's classes; -1 for any other


@dataclass(frozen=True, slots=True)
class Candidate:
    """One painted picture, with what every surrogate and the oracle said of it."""

    image_id: str
    label: int
    kind: str  # of nuisance
    nuisance: str
    looks: Mapping[str, Look]  # by surrogate
    accepted: bool | None = None  # whether the oracle sees the object; None where it leaves that open
    picture_hash: int | None = None
