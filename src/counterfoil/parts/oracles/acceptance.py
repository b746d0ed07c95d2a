"""When an oracle that gives each class a probability accepts a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts.contracts import Oracle, Verdicts

Unsure = Literal["reject", "abstain"]

UNSOUND = "the oracle's scores are not finite; check its weights and precision"


@runtime_checkable
class ScoringOracle(Oracle, Protocol):
    """An oracle that gives each of its classes a probability, so that it can be averaged with others."""

    acceptance: Acceptance

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of the bound classes.  # (N, 3, H, W) → (N, K)"""
        ...


@dataclass(frozen=True)
class Acceptance:
    """A label is kept when it is the most probable class, by at least `margin` over the next.

    Where no class reaches `threshold`, the oracle is unsure, and rejects or abstains.
    """

    threshold: float = 0.0
    margin: float = 0.0
    unsure: Unsure = "reject"

    def __post_init__(self) -> None:
        for name, value in (("threshold", self.threshold), ("margin", self.margin)):
            if not 0 <= value <= 1:
                raise BadPart(f"oracle: {name} is a probability, from 0 to 1, got {value}")
        if self.unsure not in get_args(Unsure):
            raise BadPart(f"oracle: unsure is one of {', '.join(get_args(Unsure))}, got {self.unsure!r}")

    def decide(self, probabilities: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts from probabilities over the bound classes.  # (N, K), (N,)"""
        scores = probabilities.gather(1, labels[:, None])[:, 0]  # (N,)
        sound = torch.isfinite(probabilities)
        if torch.compiler.is_compiling():  # nothing can be looked at in there: whoever reads the scores refuses them
            scores = torch.where(sound.all(dim=1), scores, torch.nan)
        elif not sound.all():
            raise RunFailed(UNSOUND)
        top, predicted = probabilities.max(dim=1)  # the first of equals
        others = probabilities.scatter(1, labels[:, None], -1.0).amax(dim=1)
        keeps = ((predicted == labels) & (scores - others >= self.margin)).to(torch.int8)
        unsure = torch.full_like(keeps, 0 if self.unsure == "reject" else -1)
        return Verdicts(
            keeps_label=torch.where(top >= self.threshold, keeps, unsure),
            scores=scores.float(),
            predicted=predicted,
        )


MOST_PROBABLE = Acceptance()
"""The plain rule: the label is the most probable class."""
