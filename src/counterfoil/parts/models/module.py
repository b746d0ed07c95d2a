"""Any torch module as a model under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels, weights
from counterfoil.parts.models.preprocessing import Preprocessing


class ModuleModel:
    """A torch module that turns pictures into one score a class, with its names and its preprocessing.

    The module is put into evaluation mode and its parameters are frozen: gradients flow to the pictures only.
    """

    differentiable = True

    def __init__(
        self,
        module: nn.Module,
        classes: Sequence[str],
        *,
        preprocessing: Preprocessing | None = None,
        aliases: labels.Aliases | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(classes, str) or len(classes) < 2:
            raise BadPart(f"a model needs the names of two or more classes, in the order of its outputs, got {classes!r}")
        self.module = module.eval().requires_grad_(False)
        self.classes: Sequence[str] = list(classes)
        self.aliases = aliases
        self.preprocessing = preprocessing or Preprocessing()
        self._origin = dict(origin or {})

    @property
    def size(self) -> int | None:
        """Side of the square pictures the module takes, or None where it takes any."""
        return self.preprocessing.side

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax.  # (N, 3, H, W) → (N, K)"""
        answer = self.module(self.preprocessing(images))
        scores = answer if isinstance(answer, Tensor) else getattr(answer, "logits", None)
        if not isinstance(scores, Tensor):
            raise BadPart(f"{type(self.module).__name__} answers with a {type(answer).__name__}; wrap it to give logits alone")
        if scores.shape != (len(images), len(self.classes)):
            raise BadPart(
                f"{type(self.module).__name__} gives scores of shape {tuple(scores.shape)} for {len(images)} images and "
                f"{len(self.classes)} class names; give it one name an output{_hint(scores, len(self.classes))}"
            )
        return scores.float()

    def to(self, device: torch.device | str) -> ModuleModel:
        """The same model, moved to a device."""
        self.module.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Where the weights came from, and a hash of what they are now."""
        return {**self._origin, "weights": weights.fingerprint(self.module)}


def adapt_model(made: Any, *, what: str, classes: Sequence[str] | None = None) -> Any:
    """A model from what a user gave: one, a torch module with class names, or a pair (module, classes)."""
    source = {"source": what.removeprefix("python:")} if what.startswith("python:") else None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return ModuleModel(made[0], classes or made[1], origin=source)
    if not isinstance(made, nn.Module) or hasattr(made, "logits"):
        return made
    names = classes or getattr(made, "classes", None)
    if names is None:
        raise BadPart(f"{what}: gives a module without class names; give (module, classes), names in output order")
    return ModuleModel(made, names, origin=source)


def _hint(scores: Tensor, names: int) -> str:
    """What one output too many usually is."""
    return " (one more output than names is often a background class, the first)" if scores.shape[-1] == names + 1 else ""
