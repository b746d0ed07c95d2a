"""A model's preprocessing, where it shows it, and the same model with another one."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from counterfoil.parts.contracts import Model
from counterfoil.parts.models.preprocessing import Preprocessing

_HOLDERS = ("model", "encoder", "inputs")  # what a wrapper calls the thing it wraps


def preprocessing_of(model: Any) -> Preprocessing | None:
    """What is done to pictures before the network sees them, or None where that cannot be seen."""
    found = getattr(model, "preprocessing", None)
    if isinstance(found, Preprocessing):
        return found
    if isinstance(model, nn.Module):  # copies of modules share their parts, so that none could be exchanged in one alone
        return None
    for name in _HOLDERS:
        held = getattr(model, name, None)
        inner = preprocessing_of(held) if held is not None else None
        if inner is not None:
            return inner
    return None


def with_preprocessing(model: Any, wanted: Preprocessing) -> Any:
    """A copy of the model that prepares pictures in another way; its weights are shared."""
    if isinstance(getattr(model, "preprocessing", None), Preprocessing):
        if hasattr(model, "__dataclass_fields__"):
            return replace(model, preprocessing=wanted)
        changed = copy(model)
        changed.preprocessing = wanted
        return changed
    for name in _HOLDERS:
        held = getattr(model, name, None)
        if held is not None and preprocessing_of(held) is not None:
            changed = copy(model)
            setattr(changed, name, with_preprocessing(held, wanted))
            return changed
    raise TypeError(f"{type(model).__name__} shows no preprocessing")


def prepared_otherwise(change: Callable[[Preprocessing], Preprocessing]) -> Callable[[Model, Tensor], Tensor]:
    """The logits of a model whose preprocessing was changed."""

    def logits(model: Model, images: Tensor) -> Tensor:
        shown = preprocessing_of(model)
        assert shown is not None
        answer: Tensor = with_preprocessing(model, change(shown)).logits(images)
        return answer

    return logits
