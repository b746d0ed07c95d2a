"""What a mask saves: the same guided steps with the whole decoder and with the masked one, turn and turn about.

Most of a step's time goes into decoding and into the gradient back through the decoder. Where the kept coordinates lie in a
window, both are done for the window alone; the tested model and the oracle still look at whole pictures. A climb also has a
start, and the masked one is the longer of the two: it decodes the picture once, whole, and notes what the window needs of it.

Steps taken apart tell where time goes. On a GPU they are not what a run does, which records steps and has many images under way:
there, whole climbs of engines are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.engine.guidance import GradientAscent, StepLength
from counterfoil.engine.scheduler import EightBits, Engine, Job
from counterfoil.engine.transfers import settle
from counterfoil.parts.contracts import Generator, Model, Oracle, State
from counterfoil.parts.generators.sparse.generator import SparseGenerator

PARTS = ("start", "render", "ask model and oracle", "gradient", "step")
START = PARTS.index("start")


@dataclass(frozen=True)
class Saving:
    """Seconds of starts and steps taken in turn, and how far the masked pictures are from what the whole decoder draws."""

    dense: NDArray[np.float64]  # (rounds, parts)
    sparse: NDArray[np.float64]  # (rounds, parts)
    psnr: NDArray[np.float64]  # (images,) decibels, after as many steps as there were rounds

    def ratio(self, budget: int) -> tuple[float, float, float]:
        """Masked / whole for a climb of `budget` steps: lower quartile, median and upper quartile."""
        climbs = [_climb(seconds, budget) for seconds in (self.sparse, self.dense)]
        low, middle, high = np.quantile(climbs[0] / climbs[1], (0.25, 0.5, 0.75))
        return float(low), float(middle), float(high)

    @property
    def step(self) -> tuple[float, float, float]:
        """Masked / whole for one step, the start left out."""
        steps = [np.delete(seconds, START, 1).sum(1) for seconds in (self.sparse, self.dense)]
        low, middle, high = np.quantile(steps[0] / steps[1], (0.25, 0.5, 0.75))
        return float(low), float(middle), float(high)


def measure(sparse: SparseGenerator, model: Model, images: Tensor, *, oracle: Oracle | None = None, rounds: int = 8) -> Saving:
    """The cost of guided steps without and with the mask, after one of each to warm up."""
    climbers = [_Climber(each, model, oracle, images) for each in (sparse.inner, sparse)]
    for climber in climbers:
        climber.step()
    times = np.array([[[climber.start(), *climber.step()] for climber in climbers] for _ in range(rounds)])  # (rounds, 2, parts)
    state = climbers[1].state
    with torch.no_grad():
        drawn = sparse.render(state)
        whole = sparse.inner.render({**state, sparse.inner.moving: sparse.filled(state)})
    return Saving(times[:, 0], times[:, 1], psnr(drawn, whole))


def in_turn(engines: Sequence[Engine], jobs: Sequence[Job], rounds: int) -> Iterator[list[float]]:
    """Seconds in which each of the engines climbs for all the jobs, a round at a time."""
    for _ in range(rounds):
        seconds = []
        for engine in engines:
            settle(engine.device)
            began = time.perf_counter()
            for _ in engine.run(jobs):
                pass
            settle(engine.device)
            seconds.append(time.perf_counter() - began)
        yield seconds


def psnr(first: Tensor, second: Tensor) -> NDArray[np.float64]:
    """How alike pictures are, one number a pair in decibels; 120 if there is no difference.  # (N, 3, H, W) twice → (N,)"""
    error = (first - second).square().flatten(1).mean(1).clamp_min(1e-12)
    return np.asarray(-10 * error.log10().double().cpu().numpy())


def _climb(seconds: NDArray[np.float64], budget: int) -> NDArray[np.float64]:
    """A start and `budget` steps, and the last look."""
    steps = np.delete(seconds, START, 1).sum(1)
    return np.asarray(seconds[:, START] + (budget + 1) * steps)


class _Climber:
    """Guided steps with one generator, timed part by part."""

    def __init__(self, generator: Generator, model: Model, oracle: Oracle | None, images: Tensor) -> None:
        self.generator, self.model, self.oracle, self.images = generator, model, oracle, images
        self.guidance = GradientAscent(StepLength(0.03, "l2", "scale"))
        self._timed = partial(_timed, device=images.device)
        with torch.no_grad():
            self.truth = model.logits(images).argmax(1)
            self.state: State = self._started()

    def start(self) -> float:
        """A start that is thrown away; its seconds."""
        with torch.no_grad():
            return self._timed(self._started)[1]

    def step(self) -> tuple[float, ...]:
        """One step; seconds for each of its parts."""
        leaf = self.state[self.generator.moving].detach().requires_grad_()
        pictures, rendering = self._timed(
            lambda: EightBits.apply(self.generator.render({**self.state, self.generator.moving: leaf}).float())
        )
        loss, asking = self._timed(lambda: self._loss(pictures))
        gradient, differentiating = self._timed(lambda: torch.autograd.grad(loss, leaf)[0])
        self.state, moving = self._timed(lambda: self._moved(gradient))
        return rendering, asking, differentiating, moving

    def _started(self) -> State:
        zeros = torch.zeros(len(self.images), dtype=torch.long, device=self.images.device)
        return self.generator.start(self.images, zeros, zeros)

    def _loss(self, pictures: Tensor) -> Tensor:
        if self.oracle is not None:
            with torch.no_grad():
                self.oracle.judge(pictures.detach(), torch.zeros_like(self.truth))
        return F.cross_entropy(self.model.logits(pictures), self.truth, reduction="sum")

    def _moved(self, gradient: Tensor) -> State:
        with torch.no_grad():
            nobody = [0] * len(gradient)  # nothing is drawn
            signal = self.guidance.direction(
                gradient, moving=self.state[self.generator.moving], scale=self.state["scale"], seeds=nobody, draws=nobody
            )
            return dict(self.generator.step(self.state, signal))


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """What the work gives, and its processor time, which other programs do not lengthen; where a GPU works, the clock's."""
    now = time.perf_counter if device.type == "cuda" else time.process_time
    settle(device)
    began = now()
    done = work()
    settle(device)
    return done, now() - began
