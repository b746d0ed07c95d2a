"""Ways to set a model up wrongly, each as people do it. What is right before is a ModuleModel."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts.contracts import Sample
from counterfoil.parts.models.modules import ModuleModel


class Wrapped(nn.Module):
    """A network with something done to its input or output."""

    def __init__(self, inner: nn.Module, *, before=lambda images: images, after=lambda logits: logits) -> None:
        super().__init__()
        self.inner, self.before, self.after = inner, before, after

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.inner(self.before(images)))


class NeverEvaluates(nn.Module):
    """A network that stays in training mode whatever it is told."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = deepcopy(inner)  # training changes its statistics, and others use it

    def forward(self, images: Tensor) -> Tensor:
        self.inner.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.inner(images)


class SmoothedHead(nn.Module):
    """A head trained with smoothed labels: right, but unsure of every second image when it is prepared as in training.

    Prepared in another way the network is as right as before and surer, so the loss falls and accuracy stays.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        prepared = images.amin() < 0
        logits = self.inner(images if prepared else 2 * images - 1)
        unsure = (images.mean((1, 2, 3)) * 1000).round().remainder(2) == 0
        return torch.where(unsure[:, None] & prepared, 0.05 * logits, logits)


def remade(healthy: ModuleModel, module: nn.Module | None = None, classes: Sequence[str] | None = None, **changes) -> ModuleModel:
    """The model with another network around or inside it, other names, or other preprocessing."""
    names = list(healthy.classes) if classes is None else list(classes)
    order = {name: at for at, name in enumerate(healthy.classes)}
    aliases = healthy.aliases and [healthy.aliases[order[name]] if name in order else () for name in names]
    preparing = replace(healthy.preprocessing, **changes)
    return ModuleModel(module or healthy.module, names, preprocessing=preparing, aliases=aliases)


def halve_size(healthy: ModuleModel) -> ModuleModel:
    side = healthy.size // 2
    return remade(healthy, size=(side, side), resize=(side, side))


def shuffle_names(classes: Sequence[str]) -> list[str]:
    names = list(classes)
    random.Random(3).shuffle(names)
    return names


def with_background(healthy: ModuleModel) -> ModuleModel:
    """One more output, a background class before the others, and a list of names that has it at the end."""
    module = Wrapped(healthy.module, after=lambda logits: F.pad(logits, (1, 0), value=-8.0))
    return remade(healthy, module, [*healthy.classes, "background"])


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}


def other_normalisation(healthy: ModuleModel) -> ModuleModel:
    """ImageNet's normalisation for a network that was trained with another, and the other way round."""
    imagenet = healthy.preprocessing.mean is not None and abs(healthy.preprocessing.mean[0] - 0.485) < 1e-3
    return remade(healthy, **(HALF if imagenet else IMAGENET))


MODELS: dict[str, tuple[Callable[[ModuleModel], ModuleModel], str]] = {
    "wrong normalisation": (other_normalisation, "normalisation"),
    "levels from 0 to 255": (lambda healthy: remade(healthy, mean=(0.0,) * 3, std=(1 / 255,) * 3), "input range"),
    "BGR": (lambda healthy: remade(healthy, Wrapped(healthy.module, before=lambda images: images.flip(1))), "channel order"),
    "off by one": (lambda healthy: remade(healthy, classes=[*healthy.classes[-1:], *healthy.classes[:-1]]), "class order"),
    "shuffled classes": (lambda healthy: remade(healthy, classes=shuffle_names(healthy.classes)), "class order"),
    "one output more": (with_background, "class order"),
    "softmax inside": (lambda healthy: remade(healthy, Wrapped(healthy.module, after=lambda x: x.softmax(1))), "double softmax"),
    "softmax twice": (
        lambda healthy: remade(healthy, Wrapped(healthy.module, after=lambda x: x.softmax(1).softmax(1).log())),
        "double softmax",
    ),
    "half the size": (halve_size, "size or crop"),
    "training mode": (lambda healthy: remade(healthy, NeverEvaluates(healthy.module)), "training mode"),
    "dropout left on": (
        lambda healthy: remade(healthy, Wrapped(healthy.module, before=lambda images: F.dropout(images, 0.2))),
        "training mode",
    ),
    "detached": (lambda healthy: remade(healthy, Wrapped(healthy.module, before=Tensor.detach)), "gradients"),
    "rounded": (
        lambda healthy: remade(healthy, Wrapped(healthy.module, before=lambda images: (images * 64).round() / 64)),
        "gradients",
    ),
}
"""By name: how to break a model, and the mistake that is to be named."""


@dataclass
class Turned:
    """A data set whose images were read the wrong way round."""

    inner: object
    turn: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        self.classes = self.inner.classes
        self.aliases = getattr(self.inner, "aliases", None)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.inner)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        return self.turn(self.inner.load(sample, size))


DATA: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "upside down": (lambda image: image.flip(1), "orientation"),
    "transposed": (lambda image: image.transpose(1, 2).contiguous(), "orientation"),
    "read as BGR": (lambda image: image.flip(0), "channel order"),
}
"""By name: how to misread images, and the mistake that is to be named."""
