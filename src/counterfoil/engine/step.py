"""One iteration for a batch of images: render, ask the model, differentiate, ask the oracle.

Every image is rendered once: the one the oracle judges is the one the gradient flows through, rounded to the 8 bits it is
stored with. On a GPU all of it is launched before anything is read back, so that reading waits once per iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.engine.climb import Assessment
from counterfoil.engine.device import fetch
from counterfoil.engine.fast import Acceleration, CudaGraph, use_channels_last
from counterfoil.parts import calls
from counterfoil.parts.contracts import Generator, Model, Oracle, State, Verdicts
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.fast.stems import Stems

NOT_FINITE = "the model's gradient is not finite; check its weights, or set precision=float32"


@dataclass(frozen=True)
class StepResult:
    """Images of one iteration, and the answers about them."""

    images: Tensor  # (N, 3, H, W)
    assessments: Callable[[], list[Assessment]]  # waits for the numbers to arrive
    gradient: Callable[[], Tensor] | None  # of the loss, for what moves; on a CPU computed only when it is asked for


class Step:
    """Model, generator and oracle, made to run as the acceleration says."""

    def __init__(
        self,
        model: Model,
        generator: Generator,
        oracle: Oracle,
        *,
        columns: Sequence[int],
        device: torch.device,
        acceleration: Acceleration,
        classes: int | None = None,
    ) -> None:
        """`columns[c]` is the model's output for class `c`; the oracle was bound to the first `classes` of these."""
        self.model, self.given, self.oracle, self.device = model, generator, oracle, device
        self.classes = classes or len(columns)
        self.columns = torch.tensor(list(columns), device=device)
        low = device.type == "cuda" and acceleration.precision == "bf16"
        if low:
            use_channels_last((model, generator, oracle))
        self.stems = Stems((model, oracle) if low else (), acceleration.dtype)
        self._use(acceleration)

    def _use(self, acceleration: Acceleration) -> None:
        self.acceleration = acceleration
        make = getattr(self.given, "accelerate", None) if acceleration.fused else None
        fast: Generator | None = make(acceleration.dtype) if make else None
        self.generator = fast or self.given
        self.fused = fast is not None and not getattr(fast, "reads_back", False)
        self.render: Callable[[State], Tensor] = self.generator.render
        self.logits: Callable[[Tensor], Tensor] = self.model.logits
        self.judge: Callable[[Tensor, Tensor], Verdicts] = self.oracle.judge
        if acceleration.compile:
            self.logits, self.judge = Compiled(self.logits, name="the model"), Compiled(self.judge, name="the oracle")
            if not self.fused:
                self.render = Compiled(self.render, name="the generator")
        self.forget()

    def forget(self) -> None:
        """Drop the graphs of batches of another size, and the memory they held."""
        self._names: list[str] = []  # of the state's tensors
        self._climb: Callable[..., tuple[Tensor, ...]] = self._with_gradient
        self._look: Callable[..., tuple[Tensor, ...]] = self._without_gradient
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.acceleration.graphs and self.fused and self.model.differentiable:  # a black box may read numbers back
            self._climb = CudaGraph(self._with_gradient, name="the step")
            self._look = CudaGraph(self._without_gradient, name="the step without a gradient")

    def plain(self) -> Step:
        """The same without what takes its time before the first step: compiler and graphs."""
        plain = copy(self)
        plain._use(replace(self.acceleration, compile=False, graphs=False))
        return plain

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor, *, names: Sequence[str]) -> tuple[list[Assessment], State]:
        """Assess clean images, and find where their climbs start."""
        with self.acceleration.computing(self.device), self.stems:  # not compiled: for one look per image that would not pay
            logits = self._scores(self.model.logits, images)
            said = self._verdicts(calls.by_source(self.oracle, self.oracle.judge, names), images, labels)
        found = self._assess(self._table(logits, labels), torch.zeros(len(images)), said, names=names)()
        # In full precision: codes depend on the last digits of where they start.
        with self.acceleration.computing(self.device, low=False), calls.naming("the generator"):
            return found, self.generator.start(images.clone(), labels.clone(), seeds)

    @torch.no_grad()
    def move(self, state: State, signal: Tensor) -> State:
        """The state moved along `signal`, computed in the precision of the run like everything else."""
        with self.acceleration.computing(self.device), calls.naming("the generator"):
            return dict(self.generator.step(state, signal))

    def run(
        self, state: State, labels: Tensor, *, gradient: bool, names: Sequence[str], origin: Tensor | None = None
    ) -> StepResult:
        """The images of a state, the answers about them and, if asked for, the gradient of the model's loss.

        `origin` is where the moving tensor began, for the distance from there.
        """
        slope: Callable[[], Tensor] | None = None
        with self.acceleration.computing(self.device), self.stems:
            self._names = list(state)
            if gradient and self.device.type == "cpu":
                leaf, images, loss, logits = self._forward(state, labels)
                table = self._table(logits.detach(), labels)
                slope = lambda: _finite(calls.gradient_of(loss, leaf, images).float())  # noqa: E731
            elif gradient:
                with self.acceleration.deterministic_attention():
                    images, table, found = self._climb(labels, *state.values())
                slope = lambda: found  # noqa: E731
            else:
                images, table = self._look(labels, *state.values())
            said = self._verdicts(calls.by_source(self.oracle, self.judge, names), images.detach(), labels)
        moving = state[self.generator.moving]
        distance = distance_from(moving if origin is None else origin, moving, state["scale"])
        return StepResult(images.detach(), self._assess(table, distance, said, names=names), slope)

    def _with_gradient(self, labels: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Images, what the model says of them, and the gradient: kernels alone, nothing is read back."""
        leaf, images, loss, logits = self._forward(dict(zip(self._names, tensors, strict=True)), labels)
        gradient = calls.gradient_of(loss, leaf, images).float()
        sound = gradient.isfinite().flatten(1).all(1)
        return images.detach(), torch.cat([self._table(logits.detach(), labels), sound[:, None]], 1), gradient

    @torch.no_grad()
    def _without_gradient(self, labels: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Images and what the model says of them: likewise kernels alone."""
        images = self._images(dict(zip(self._names, tensors, strict=True)))
        return images, self._table(self._scores(self.logits, images), labels)

    @torch.enable_grad()
    def _forward(self, state: State, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        moving = self.generator.moving
        leaf = state[moving].detach().requires_grad_()
        images = self._images({**state, moving: leaf})
        logits = self._scores(self.logits, images)
        loss = F.cross_entropy(logits, self.columns[labels], reduction="none")  # (N,)
        return leaf, images, loss, logits

    def _images(self, state: State) -> Tensor:
        with calls.naming("the generator"):
            images: Tensor = RoundTo8Bits.apply(self.render(state).float())
        return images

    def _scores(self, ask: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """The model's logits, asked with a copy: what it writes into its input must not reach anybody else."""
        return calls.logits_of(ask, images.clone(), len(self.model.classes))

    def _verdicts(self, ask: Callable[[Tensor, Tensor], Verdicts], images: Tensor, labels: Tensor) -> Tensor:
        """The oracle's verdicts, asked with a copy likewise.  # → (N, 3) float64"""
        return calls.verdicts_of(ask, images.clone(), labels.clone())

    @torch.no_grad()
    def _table(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss, confidence, truth's chance, predicted class and whether it is right, one row per image.  # → (N, 5) float64"""
        logits, truth = logits.float(), self.columns[labels]
        loss = F.cross_entropy(logits, truth, reduction="none")
        chance = logits.softmax(1)  # (N, K)
        confidence, top = chance.max(1)
        inside, where = (top[:, None] == self.columns).max(1)
        index = torch.where(inside, where, -1)
        columns = [loss, confidence, chance.gather(1, truth[:, None])[:, 0], index, top == truth]
        return torch.stack([column.double() for column in columns], 1)

    def _assess(self, table: Tensor, distance: Tensor, said: Tensor, *, names: Sequence[str]) -> Callable[[], list[Assessment]]:
        arriving = fetch([torch.cat([distance.to(table)[:, None], table, said.to(table.device)], 1)])
        return lambda: _read(arriving()[0], names, self.classes)


class RoundTo8Bits(torch.autograd.Function):
    """Rounds images to the 256 levels they are stored with; gradients pass as if it had not."""

    @staticmethod
    def forward(ctx: object, images: Tensor) -> Tensor:  # type: ignore[override]
        return (images.clamp(0, 1) * 255).round() / 255

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def distance_from(origin: Tensor, moving: Tensor, scale: Tensor) -> Tensor:
    """Root mean square of what has moved, in the generator's scale.  # (N, …), (N, …), (N,) → (N,)"""
    moved = (moving - origin).flatten(1).float()
    length: Tensor = moved.norm(dim=1) / moved.shape[1] ** 0.5 / scale
    return length


def _read(table: Tensor, names: Sequence[str], classes: int) -> list[Assessment]:
    """The rows of a table: distance, loss, confidence, truth, class, right, gradient is finite (if any), keeps, score, seen."""
    found = []
    for name, row in zip(names, table.tolist(), strict=True):
        distance, loss, confidence, truth, index, right, *finite, keeps, score, seen = row
        if not math.isfinite(loss):
            raise RunFailed(f"{name}: the model's logits are not finite; check its weights, preprocessing and precision")
        if finite and not finite[0]:
            raise RunFailed(NOT_FINITE)
        calls.check_verdict(keeps, score, seen, classes, part=f"{name}: the oracle")
        kept = None if keeps < 0 else bool(keeps)
        found.append(Assessment(loss, int(index), bool(right), confidence, truth, kept, score, int(seen), distance))
    return found


def _finite(gradient: Tensor) -> Tensor:
    if not torch.isfinite(gradient).all():
        raise RunFailed(NOT_FINITE)
    return gradient
