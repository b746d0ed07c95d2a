"""A torch module, a zero-shot encoder, or groups of another model's classes as a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels, registry, weights
from counterfoil.parts.contracts import Encoder, Model, Movable, Trait, describe, provenance_of
from counterfoil.parts.encoders.clip import PAPER_TEMPLATE, check_templates, compare, embed_prompts
from counterfoil.parts.models.preprocessing import Preprocessing

Others = Literal["drop", "keep"]
OTHER = "(other)"


class ModuleModel(Movable):
    """A torch module that turns images into one score per class, with its names and its preprocessing.

    The module is put into evaluation mode and its parameters are frozen: gradients flow to the images only.
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
        self.size = self.preprocessing.side
        self._origin = dict(origin or {})

    def logits(self, images: Tensor) -> Tensor:
        answer = self.module(self.preprocessing(images))
        scores = answer if isinstance(answer, Tensor) else getattr(answer, "logits", None)
        if not isinstance(scores, Tensor):
            raise BadPart(f"{type(self.module).__name__} answers with a {type(answer).__name__}; wrap it to give logits alone")
        if scores.shape != (len(images), len(self.classes)):
            one_more = scores.ndim == 2 and scores.shape[1] == len(self.classes) + 1
            hint = " (one more output than names is often a background class, the first)" if one_more else ""
            raise BadPart(
                f"{type(self.module).__name__} gives scores of shape {tuple(scores.shape)} for {len(images)} images and "
                f"{len(self.classes)} class names; give it one name per output{hint}"
            )
        return scores.float()

    def describe(self) -> list[Trait]:
        return self.preprocessing.describe()

    def provenance(self) -> dict[str, str]:
        """The source of the weights, and their hash as they are now."""
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


class ZeroShotModel(Movable):
    """Classifies by the class whose prompt is nearest. Logits are similarities on the scale the encoder was trained at."""

    differentiable = True

    def __init__(
        self,
        encoder: Encoder,
        classes: Sequence[str],
        *,
        templates: str | Sequence[str] = PAPER_TEMPLATE,
        aliases: labels.Aliases | None = None,
    ) -> None:
        if isinstance(classes, str) or len(classes) < 2:
            raise BadPart(f"a zero-shot classifier needs the names of two or more classes, got {classes!r}")
        self.encoder, self.size = encoder, encoder.size
        self.templates = check_templates(templates)
        self.classes: Sequence[str] = list(classes)
        self.aliases = aliases
        self._texts = embed_prompts(encoder, self.classes, self.templates)  # (K, D)

    def logits(self, images: Tensor) -> Tensor:
        return compare(self.encoder, images, self._texts)

    def describe(self) -> list[Trait]:
        return [*describe(self.encoder), Trait("prompts", " | ".join(self.templates))]

    def provenance(self) -> dict[str, str]:
        return {**self.encoder.provenance(), "templates": " | ".join(self.templates)}


def zero_shot(
    encoder: Encoder, classes: str | Sequence[str] | None, *, templates: str | Sequence[str], what: str
) -> ZeroShotModel:
    """A zero-shot classifier from an encoder and class names as an option gives them."""
    found = labels.named_classes(classes)
    if found is None:
        raise BadPart(
            f"{what}: compares images with words and has no classes of its own; give classes: a list, a file with one "
            "name per line, or imagenet"
        )
    return ZeroShotModel(encoder, found[0], templates=templates, aliases=found[1])


@dataclass(frozen=True)
class GroupedOptions:
    groups: str | Mapping[str, Any] | None = None
    others: Others = "drop"
    options: Mapping[str, Any] | None = None


def grouped_model(model: str, options: GroupedOptions) -> GroupedModel:
    """Any model with many classes made one: grouped:timm:resnet50 with `groups`, its own options under `options`.

    `groups` maps each new class to names, WordNet ids, numbers or ranges such as "151-268" of the model's classes; or it
    is a file with such a mapping, or `imagenet-9`. The score of a group is the log of the sum of its members' exponentials,
    so that its probability is the sum of theirs. Classes in no group are left out, or with `others: keep` become one more
    class. A group of one member each is a plain subset.
    """
    if not model:
        raise BadPart("grouped: name a model, as in grouped:timm:resnet50")
    if options.groups is None:
        raise BadPart(f"grouped:{model}: give groups, a mapping from each class to its members, a file, or imagenet-9")
    inner: Model = registry.create("model", model, options.options)
    return GroupedModel(inner, labels.read_groups(options.groups), others=options.others, name=model)


class GroupedModel(Movable):
    """A model over groups of another model's classes."""

    def __init__(
        self,
        model: Model,
        groups: Mapping[str, Sequence[labels.Member]],
        *,
        others: Others = "drop",
        name: str = "model",
    ) -> None:
        self.model, self.name = model, name
        self.differentiable, self.size = model.differentiable, getattr(model, "size", None)
        self.aliases: labels.Aliases | None = None  # the names of a group's members are no names of the group
        members = labels.resolve_groups(groups, model.classes, what=f"model {name}", aliases=getattr(model, "aliases", None))
        if others == "keep":
            taken = {number for numbers in members.values() for number in numbers}
            rest = [number for number in range(len(model.classes)) if number not in taken]
            members = {**members, OTHER: rest} if rest else members
        self.classes: Sequence[str] = list(members)
        self._members = [torch.tensor(numbers) for numbers in members.values()]

    def logits(self, images: Tensor) -> Tensor:
        scores = self.model.logits(images)  # (N, K)
        columns = [scores.index_select(1, numbers.to(scores.device)).logsumexp(dim=1) for numbers in self._members]
        return torch.stack(columns, dim=1)

    def describe(self) -> list[Trait]:
        return [*describe(self.model), Trait("classes", self._groups(), "the options")]

    def provenance(self) -> dict[str, str]:
        return {**provenance_of(self.model), "groups": self._groups()}

    def _groups(self) -> str:
        return ", ".join(f"{name}: {len(numbers)}" for name, numbers in zip(self.classes, self._members, strict=True))
