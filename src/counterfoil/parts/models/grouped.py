"""A model whose classes are put into groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels, registry
from counterfoil.parts.contracts import Model, provenance_of, to_device

Others = Literal["drop", "keep"]
OTHER = "(other)"


def grouped_model(
    model: str, *, groups: labels.GroupSpec, others: Others = "drop", options: Mapping[str, Any] | None = None
) -> GroupedModel:
    """Any model with many classes made one: grouped:timm:resnet50 with `groups`, its own options under `options`.

    `groups` maps each new class to names, WordNet ids, numbers or ranges such as "151-268" of the model's classes; or it
    is a file with such a mapping, or `imagenet-9`. The score of a group is the log of the sum of its members' exponentials,
    so that its probability is the sum of theirs. Classes in no group are left out, or with `others: keep` become one more
    class. A group of one member each is a plain subset.
    """
    if not model:
        raise BadPart("grouped: name a model, as in grouped:timm:resnet50")
    inner: Model = registry.create("model", model, options)
    return GroupedModel(inner, labels.read_groups(groups), others=others, name=model)


class GroupedModel:
    """A model over groups of another model's classes."""

    def __init__(
        self,
        model: Model,
        groups: Mapping[str, Sequence[labels.Member]],
        *,
        others: Others = "drop",
        name: str = "model",
    ) -> None:
        if others not in get_args(Others):
            raise BadPart(f"grouped: others is one of {', '.join(get_args(Others))}, got {others!r}")
        self.model = model
        self.name = name
        members = labels.resolve_groups(groups, model.classes, what=f"model {name}", aliases=getattr(model, "aliases", None))
        if others == "keep":
            taken = {number for numbers in members.values() for number in numbers}
            rest = [number for number in range(len(model.classes)) if number not in taken]
            members = {**members, OTHER: rest} if rest else members
        self.classes: Sequence[str] = list(members)
        self._members = [torch.tensor(numbers) for numbers in members.values()]

    @property
    def differentiable(self) -> bool:
        """Whether the inner model is."""
        return self.model.differentiable

    @property
    def size(self) -> int | None:
        """Side of the square pictures the inner model takes, or None where it takes any."""
        return getattr(self.model, "size", None)

    @property
    def aliases(self) -> labels.Aliases | None:
        """The names of a group's members are no names of the group."""
        return None

    def logits(self, images: Tensor) -> Tensor:
        """Scores of the groups.  # (N, 3, H, W) → (N, groups)"""
        scores = self.model.logits(images)  # (N, K)
        columns = [scores.index_select(1, numbers.to(scores.device)).logsumexp(dim=1) for numbers in self._members]
        return torch.stack(columns, dim=1)

    def to(self, device: torch.device | str) -> GroupedModel:
        """The same model, moved to a device."""
        self.model = to_device(self.model, device)
        self._members = [numbers.to(device) for numbers in self._members]
        return self

    def provenance(self) -> dict[str, str]:
        """What the inner model says of itself, and how its classes were put together."""
        sizes = ", ".join(f"{name}: {len(numbers)}" for name, numbers in zip(self.classes, self._members, strict=True))
        return {**provenance_of(self.model), "groups": sizes}
