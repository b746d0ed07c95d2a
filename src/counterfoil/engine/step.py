"""One iteration for a tile of images: render, ask the model, differentiate, ask the oracle.

Every picture is rendered once: the one the oracle judges is the one the gradient flows through, rounded to the 8 bits it is
stored with. On a GPU all of it is launched before anything is read back, so that reading waits once an iteration.
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
from counterfoil.engine.climb import Look
from counterfoil.engine.transfers import fetched
from counterfoil.parts import calls
from counterfoil.parts.contracts import Generator, Model, Oracle, State, Verdicts
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.fast.generators import hastened
from counterfoil.parts.fast.graphs import Recorded
from counterfoil.parts.fast.settings import Acceleration
from counterfoil.parts.fast.stems import Stems
from counterfoil.protocols.independence import modules_of


@dataclass(frozen=True)
class Outcome:
    """What an iteration gave."""

    images: Tensor  # (N, 3, H, W)
    looks: Callable[[], list[Look]]  # waits for the numbers to arrive
    gradient: Callable[[], Tensor] | None  # of the loss, for what moves; computed when it is asked for, or before


class Ascent:
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
        self.model, self.given, self.oracle, self.device = model, generator, oracle, device
        self.classes = classes or len(columns)  # that the oracle was bound to
        self.columns = torch.tensor(list(columns), device=device)
        if device.type == "cuda" and acceleration.precision != "float32":
            _lay_out(model, generator, oracle)
        halved = device.type == "cuda" and acceleration.precision == "bf16"
        self.stems = Stems((model, oracle) if halved else (), acceleration.kind)
        self._use(acceleration)

    def _use(self, acceleration: Acceleration) -> None:
        self.acceleration = acceleration
        fast = hastened(self.given, acceleration.kind, recompute=acceleration.recompute) if acceleration.fused else None
        self.generator, self.fused = fast or self.given, fast is not None
        self.render: Callable[[State], Tensor] = self.generator.render
        self.logits: Callable[[Tensor], Tensor] = self.model.logits
        self.judge: Callable[[Tensor, Tensor], Verdicts] = self.oracle.judge
        if acceleration.compile:
            self.logits, self.judge = Compiled(self.logits, name="the model"), Compiled(self.judge, name="the oracle")
            if not self.fused:
                self.render = Compiled(self.render, name="the generator")
        self.forget()

    def forget(self) -> None:
        """Drop what was recorded for tiles of another size, and the memory it held."""
        self._names: list[str] = []  # of the state's tensors
        self._climb: Callable[..., tuple[Tensor, ...]] = self._with_gradient
        self._look: Callable[..., tuple[Tensor, ...]] = self._without_gradient
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.acceleration.graphs and self.fused and self.model.differentiable:  # a black box may read numbers back
            self._climb = Recorded(self._with_gradient, name="the step")
            self._look = Recorded(self._without_gradient, name="the step without a gradient")

    def plain(self) -> Ascent:
        """The same without what takes its time before the first step: compiler and graphs."""
        plain = copy(self)
        plain._use(replace(self.acceleration, compile=False, graphs=False))
        return plain

    def recompute(self) -> None:
        """Keep less of a step, and compute it again for the gradient."""
        self._use(replace(self.acceleration, recompute=True))

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor, *, names: Sequence[str]) -> tuple[list[Look], State]:
        """Looks at clean pictures, and where their climbs start."""
        with self.acceleration.numbers(self.device), self.stems:  # not compiled: for one look an image that would not pay
            logits = self._scores(self.model.logits, images)
            said = self._verdicts(self.oracle.judge, images, labels)
        looks = self._looks(self._table(logits, labels), said, names=names)()
        # In full precision: codes depend on the last digits of where they start.
        with self.acceleration.numbers(self.device, half=False), calls.naming("the generator"):
            return looks, self.generator.start(images.clone(), labels.clone(), seeds)

    @torch.no_grad()
    def move(self, state: State, signal: Tensor) -> State:
        """The state moved along `signal`, computed in the precision of the run like everything else."""
        with self.acceleration.numbers(self.device), calls.naming("the generator"):
            return dict(self.generator.step(state, signal))

    def step(self, state: State, labels: Tensor, *, climbing: bool, names: Sequence[str]) -> Outcome:
        """The pictures of a state, what is said of them and, if `climbing`, the gradient of the model's loss."""
        gradient: Callable[[], Tensor] | None = None
        with self.acceleration.numbers(self.device), self.stems:
            if climbing and self.device.type == "cpu":
                leaf, images, loss, logits = self._forward(state, labels)
                table = self._table(logits.detach(), labels)
                gradient = lambda: _finite(calls.gradient_of(loss, leaf, images).float())  # noqa: E731
            elif climbing:
                self._names = list(state)
                with self.acceleration.gradients():
                    images, table, slope = self._climb(labels, *state.values())
                gradient = lambda: slope  # noqa: E731
            else:
                self._names = list(state)
                images, table = self._look(labels, *state.values())
            said = self._verdicts(self.judge, images.detach(), labels)
        return Outcome(images.detach(), self._looks(table, said, names=names), gradient)

    def _with_gradient(self, labels: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures, what the model says of them, and the gradient: kernels alone, nothing is read back."""
        state = dict(zip(self._names, tensors, strict=True))
        leaf, images, loss, logits = self._forward(state, labels)
        gradient = calls.gradient_of(loss, leaf, images).float()
        sound = gradient.isfinite().flatten(1).all(1)
        return images.detach(), torch.cat([self._table(logits.detach(), labels), sound[:, None]], 1), gradient

    @torch.no_grad()
    def _without_gradient(self, labels: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures and what the model says of them: likewise kernels alone."""
        images = self._pictures(dict(zip(self._names, tensors, strict=True)))
        return images, self._table(self._scores(self.logits, images), labels)

    @torch.enable_grad()
    def _forward(self, state: State, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        moving = self.generator.moving
        leaf = state[moving].detach().requires_grad_()
        images = self._pictures({**state, moving: leaf})
        logits = self._scores(self.logits, images)
        loss = F.cross_entropy(logits, self.columns[labels], reduction="none")  # (N,)
        return leaf, images, loss, logits

    def _pictures(self, state: State) -> Tensor:
        with calls.naming("the generator"):
            images: Tensor = EightBits.apply(self.render(state).float())
        return images

    def _scores(self, ask: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """The model's logits, asked with a copy: what it writes into its input must not reach anybody else."""
        return calls.logits_of(ask, images.clone(), len(self.model.classes))

    def _verdicts(self, ask: Callable[[Tensor, Tensor], Verdicts], images: Tensor, labels: Tensor) -> Tensor:
        """The oracle's verdicts, asked with a copy likewise.  # → (N, 3) float64"""
        return calls.verdicts_of(ask, images.clone(), labels.clone())

    @torch.no_grad()
    def _table(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss, confidence, truth's chance, predicted class and whether it is right, one row a picture.  # → (N, 5) float64"""
        logits, truth = logits.float(), self.columns[labels]
        loss = F.cross_entropy(logits, truth, reduction="none")
        chance = logits.softmax(1)  # (N, K)
        confidence, top = chance.max(1)
        inside, where = (top[:, None] == self.columns).max(1)
        index = torch.where(inside, where, -1)
        columns = [loss, confidence, chance.gather(1, truth[:, None])[:, 0], index, top == truth]
        return torch.stack([column.double() for column in columns], 1)

    def _looks(self, table: Tensor, said: Tensor, *, names: Sequence[str]) -> Callable[[], list[Look]]:
        arriving = fetched([torch.cat([table, said.to(table.device)], 1)])
        return lambda: _read(arriving()[0], names, self.classes)


def _read(table: Tensor, names: Sequence[str], classes: int) -> list[Look]:
    """The looks in a table: loss, confidence, truth, class, right, whether the gradient is sound, keeps, score, seen."""
    looks = []
    for name, row in zip(names, table.tolist(), strict=True):
        cost, sure, known, index, right, *sound, keeps, score, seen = row
        if not math.isfinite(cost):
            raise RunFailed(f"{name}: the model's logits are not finite; check its weights, preprocessing and precision")
        if sound and not sound[0]:
            raise RunFailed(UNSOUND)
        calls.check_verdict(keeps, score, seen, classes, part=f"{name}: the oracle")
        looks.append(Look(cost, int(index), bool(right), sure, known, None if keeps < 0 else bool(keeps), score, int(seen)))
    return looks


UNSOUND = "the model's gradient is not finite; check its weights, or set precision=float32"


class EightBits(torch.autograd.Function):
    """Rounds pictures to the 256 levels they are stored with; gradients pass as if it had not."""

    @staticmethod
    def forward(ctx: object, images: Tensor) -> Tensor:  # type: ignore[override]
        return (images.clamp(0, 1) * 255).round() / 255

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def _finite(gradient: Tensor) -> Tensor:
    if not torch.isfinite(gradient).all():
        raise RunFailed(UNSOUND)
    return gradient


def _lay_out(*parts: object) -> None:
    """Convolutions' weights with channels last, which tensor cores want; what goes through them is laid out likewise."""
    for part in parts:
        for module in modules_of(part):
            if any(weight.dim() == 4 for weight in module.parameters()):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
