"""Any classifier as an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels as names
from counterfoil.parts import registry
from counterfoil.parts.contracts import Model, Verdicts, provenance_of, to_device
from counterfoil.parts.oracles.acceptance import MOST_PROBABLE, Acceptance, Unsure


def classifier_oracle(
    model: str,
    *,
    options: Mapping[str, Any] | None = None,
    min_confidence: float = 0.0,
    margin: float = 0.0,
    unsure: Unsure = "reject",
) -> ClassifierOracle:
    """Any model as an oracle: classifier:timm:resnet50, with the model's own options under `options`.

    A picture keeps its label when the label is the most probable of the data's classes; the model's other classes are
    left out. Where no class has a probability of `min_confidence`, the oracle rejects or, with `unsure: abstain`, says
    nothing; `margin` asks for a lead over the next class.
    """
    if not model:
        raise BadPart("classifier: name a model, as in classifier:timm:resnet50")
    acceptance = Acceptance(threshold=min_confidence, margin=margin, unsure=unsure)
    return ClassifierOracle(registry.create("model", model, options), name=model, acceptance=acceptance)


class ClassifierOracle:
    """Sees the class that a model finds most probable among those the oracle is bound to."""

    def __init__(self, model: Model, *, name: str = "model", acceptance: Acceptance = MOST_PROBABLE) -> None:
        self.model = model
        self.name = name
        self.acceptance = acceptance
        self._columns: list[int] | None = None

    def bind(self, classes: Sequence[str]) -> ClassifierOracle:
        """The oracle with the model's outputs for `classes` picked out, by name."""
        bound = copy(self)
        what = f"oracle classifier:{self.name}"
        bound._columns = names.match(classes, self.model.classes, what=what, aliases=getattr(self.model, "aliases", None))
        return bound

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of the bound classes.  # (N, 3, H, W) → (N, K)"""
        if self._columns is None:
            raise BadPart("oracle: bind it to class names before it judges")
        return self.model.logits(images)[:, self._columns].float().softmax(dim=-1)

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts on whether each picture shows its label.  # (N, 3, H, W), (N,) int64"""
        return self.acceptance.decide(self.probabilities(images), labels)

    def to(self, device: torch.device | str) -> ClassifierOracle:
        """The same oracle, moved to a device."""
        self.model = to_device(self.model, device)
        return self

    def provenance(self) -> dict[str, str]:
        """What the model says of itself."""
        return {"model": self.name, **provenance_of(self.model)}
