"""The smallest real parts that show a behaviour: tiny networks with fixed random weights, and oracles under command."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.parts.contracts import Verdicts

CLASSES = ("ant", "bee", "cat", "dog")


class TinyModel(nn.Module):
    """A small convolutional classifier with fixed random weights."""

    def __init__(self, classes: Sequence[str] = CLASSES, *, seed: int = 0, differentiable: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.body = nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(),
                nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, len(classes)),
            )  # fmt: skip
            with torch.no_grad():
                self.body[-1].weight.mul_(12)
        self.classes, self.differentiable, self.size = tuple(classes), differentiable, 16
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return self.body((images - 0.5) / 0.25)

    def logits(self, images: Tensor) -> Tensor:
        return self(images)


class TinyAutoencoder(nn.Module):
    """Four times down, four times up, with fixed random weights and a skip that keeps the image."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.down = nn.Conv2d(3, 48, 4, stride=4)
            self.up = nn.ConvTranspose2d(48, 3, 4, stride=4)
        with torch.no_grad():  # rearrangement and back, plus a little mixing
            eye = torch.eye(48).reshape(48, 3, 4, 4)
            self.down.weight.mul_(0.1).add_(eye)
            self.up.weight.mul_(0.1).add_(eye)
            self.down.bias.zero_(), self.up.bias.zero_()
        self.eval().requires_grad_(False)

    def encode(self, images: Tensor) -> Tensor:
        return self.down(images)

    def decode(self, latents: Tensor) -> Tensor:
        return self.up(latents)


@dataclass
class CommandedOracle:
    """Rejects exactly the images it was told to, by their pixels; `asked` counts the images it saw."""

    rejected: set[str] = field(default_factory=set)
    abstains: bool = False
    asked: int = 0

    def bind(self, classes: Sequence[str]) -> CommandedOracle:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        self.asked += len(images)
        keeps = [pixels(image) not in self.rejected for image in images]
        answers = torch.tensor([-1 if self.abstains else int(keep) for keep in keeps], dtype=torch.int8)
        return Verdicts(answers, images.flatten(1).mean(1), torch.where(answers != 0, labels, -1))


@dataclass
class RuleOracle:
    """Accepts the images for which a rule holds."""

    rule: Callable[[Tensor, Tensor], Tensor]

    def bind(self, classes: Sequence[str]) -> RuleOracle:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        accepted = self.rule(images, labels)
        return Verdicts(accepted.to(torch.int8), accepted.float(), torch.where(accepted, labels, -1))


def pixels(image: Tensor) -> str:
    """An image's identity."""
    return hashlib.sha256((image * 255).round().to(torch.uint8).numpy().tobytes()).hexdigest()


class OtherClasses(TinyModel):
    """Knows other things than the data show."""

    def __init__(self) -> None:
        super().__init__(("oak", "elm", "ash"))


class NotANumber(TinyModel):
    """A model whose arithmetic went wrong."""

    def logits(self, images: Tensor) -> Tensor:
        return super().logits(images) * float("nan")


class Another(TinyModel):
    """The same architecture with other weights."""

    def __init__(self) -> None:
        super().__init__(seed=5)


class Third(TinyModel):
    """The same architecture with weights of its own again."""

    def __init__(self) -> None:
        super().__init__(seed=9)


def stir(network: Any) -> Any:
    """The network with biases and gains that are not the usual zeros and ones."""
    chance = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        spread = 0.3 if weight.dim() == 1 else weight[0].numel() ** -0.5
        weight.data = torch.randn(weight.shape, generator=chance) * spread + (weight.dim() == 1) * 0.5
    return network.eval().requires_grad_(False)


def apart(found: Tensor, wanted: Tensor) -> float:
    """The relative distance of two tensors."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


@dataclass(frozen=True)
class Codec:
    """An autoencoder from plain functions."""

    encode: Callable[[Tensor], Tensor]
    decode: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class QuantisedCodec(Codec):
    """A quantised autoencoder from plain functions."""

    quantise: Callable[[Tensor], Tensor]
