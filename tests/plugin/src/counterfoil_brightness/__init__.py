"""A plug-in as small as one can be: it shows what a generator and an oracle have to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterfoil.parts.contracts import State, Verdicts


@dataclass(frozen=True)
class Brightness:
    """Brightens or darkens the whole image."""

    rest: str = ""
    per_step: float = 0.1
    moving = "brightness"
    step_size = 0.05
    size = None

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        count = len(images)
        return {"source": images, "brightness": images.new_zeros(count, 1), "scale": images.new_full((count,), self.per_step)}

    def render(self, state: State) -> Tensor:
        return (state["source"] + state["brightness"][:, :, None, None]).clamp(0, 1)

    def step(self, state: State, signal: Tensor) -> State:
        return {**state, "brightness": state["brightness"] + signal}


@dataclass(frozen=True)
class Daylight:
    """Believes the label as long as the image is neither too dark nor too bright."""

    rest: str = ""
    darkest: float = 0.1
    brightest: float = 0.9

    def bind(self, classes: Sequence[str]) -> Daylight:
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        light = images.flatten(1).mean(1)
        clear = (light >= self.darkest) & (light <= self.brightest)
        return Verdicts(clear.to(torch.int8), light, torch.where(clear, labels, -1))
