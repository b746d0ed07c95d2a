"""What a mask saves: the same guided steps with all coordinates and with the kept ones, turn and turn about.

Most of a step's time goes into decoding and into the gradient back through the decoder, and a decoder whose layers look at the
whole picture (normalisation over groups, attention) has to be run whole however few of its inputs move. What is saved is
what happens to the coordinates themselves, and with a budget the steps that a shorter search does not take.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.engine import EightBits
from counterfoil.guidance import GradientAscent, StepLength
from counterfoil.parts import Generator, Model, State
from counterfoil.sparse.generator import SparseGenerator
from counterfoil.sparse.mask import Mask

PARTS = ("render and ask", "gradient", "step")


@dataclass(frozen=True)
class Saving:
    """Processor seconds of steps taken in turn."""

    dense: NDArray[np.float64]  # (rounds, parts)
    sparse: NDArray[np.float64]  # (rounds, parts)

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Kept / all for a whole step: lower quartile, median and upper quartile."""
        low, middle, high = np.quantile(self.sparse.sum(1) / self.dense.sum(1), (0.25, 0.5, 0.75))
        return float(low), float(middle), float(high)


def measure(generator: Generator, mask: Mask, model: Model, images: Tensor, *, rounds: int = 8) -> Saving:
    """The cost of guided steps without and with the mask, after one of each to warm up."""
    climbers = [_Climber(each, model, images) for each in (generator, SparseGenerator(generator, mask))]
    for climber in climbers:
        climber.step()
    times = np.array([[climber.step() for climber in climbers] for _ in range(rounds)])  # (rounds, 2, parts)
    return Saving(times[:, 0], times[:, 1])


class _Climber:
    """Guided steps with one generator, timed part by part."""

    def __init__(self, generator: Generator, model: Model, images: Tensor) -> None:
        self.generator, self.model = generator, model
        with torch.no_grad():
            self.truth = model.logits(images).argmax(1)
            zeros = torch.zeros(len(images), dtype=torch.long, device=images.device)
            self.state: State = generator.start(images, zeros, zeros)
        self.guidance = GradientAscent(StepLength(0.03, "l2", "scale"))

    def step(self) -> tuple[float, ...]:
        """One step; seconds for looking, differentiating and moving."""
        leaf = self.state[self.generator.moving].detach().requires_grad_()
        loss, looking = _timed(lambda: self._loss(leaf))
        gradient, differentiating = _timed(lambda: torch.autograd.grad(loss, leaf)[0])
        self.state, moving = _timed(lambda: self._moved(gradient))
        return looking, differentiating, moving

    def _loss(self, leaf: Tensor) -> Tensor:
        pictures: Tensor = EightBits.apply(self.generator.render({**self.state, self.generator.moving: leaf}))
        return F.cross_entropy(self.model.logits(pictures), self.truth, reduction="sum")

    def _moved(self, gradient: Tensor) -> State:
        with torch.no_grad():
            nobody = [0] * len(gradient)  # nothing is drawn
            signal = self.guidance.direction(
                gradient, moving=self.state[self.generator.moving], scale=self.state["scale"], seeds=nobody, draws=nobody
            )
            return dict(self.generator.step(self.state, signal))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    _settle()
    began = _now()
    done = work()
    _settle()
    return done, _now() - began


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _now() -> float:
    """Processor time, which other programs do not lengthen; where a GPU works, the clock."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()
