"""The slot scheduler for iterative search; the only place where model, generator and oracle meet.

It runs Algorithm 1 of the FMR paper on many images at once. Each image is its own experiment, driven by its own seed.
Images under way sit in slots; one that ends is handed out and its slot refilled at once. An iteration renders every
picture once: the one the oracle judges is the one the gradient flows through, rounded to the 8 bits it is stored with.

Parts are always called with the same number of rows, a tile, because floating-point kernels may round differently for
another batch size. With the tile fixed, an image's result in float32 on a CPU does not depend on the number of slots,
on its neighbours, on the order, or on having been interrupted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.climb import Climb, Look, Rules
from counterfoil.errors import RunFailed
from counterfoil.guidance import GradientAscent, Guidance, RandomSearch, RandomSteps, StepLength
from counterfoil.parts import Generator, Model, Oracle, State
from counterfoil.records import Arm
from counterfoil.spec import EngineSpec, SearchSpec

CPU_TILE = 8


@dataclass(frozen=True)
class Job:
    """One image to be taken through every arm."""

    image_id: str
    image: Tensor  # (3, H, W)
    label: int  # in the run's classes
    seed: int


@dataclass(frozen=True)
class Finished:
    """One image, done: what was said of the clean picture, and its climbs with the pictures they kept."""

    job: Job
    clean: Look
    reconstruction: Tensor  # (3, H, W)
    climbs: tuple[Climb, ...]  # one an arm
    pictures: tuple[Tensor, ...]  # kept last, one an arm  # (3, H, W)
    places: tuple[Tensor, ...]  # where what moves came to rest, one an arm


class Engine:
    """Climbs the tested model's loss for a stream of images, many at a time."""

    def __init__(
        self,
        model: Model,
        generator: Generator,
        oracle: Oracle,
        *,
        columns: Sequence[int],
        search: SearchSpec,
        layout: EngineSpec,
        device: str = "cpu",
    ) -> None:
        """`columns[c]` is the model's output for the run's class `c`; the oracle is bound to the run's classes."""
        self.model, self.generator, self.oracle = model, generator, oracle
        self.search, self.layout, self.device = search, layout, torch.device(device)
        self.columns = torch.tensor(list(columns), device=self.device)
        self.tile = layout.tile or (CPU_TILE if self.device.type == "cpu" else layout.slots)

    def arms(self) -> dict[Arm, Guidance]:
        """The arms every image goes through."""
        length = StepLength(self.search.step, self.search.norm, self.search.unit)
        by_gradient = self.search.guidance == "gradient" or (self.search.guidance == "auto" and self.model.differentiable)
        arms: dict[Arm, Guidance] = {"guided": GradientAscent(length) if by_gradient else RandomSearch(length)}
        if self.search.control:
            arms["random"] = RandomSteps(length)
        return arms

    def rules(self, guidance: Guidance) -> Rules:
        """When a climb under `guidance` ends."""
        proposals = 20 if guidance.climbs_only else 1  # a random step raises the loss about every other time
        queries = self.search.queries or proposals * self.search.budget + 1
        return Rules(self.search.budget, queries, self.search.stop_when_fooled, guidance.climbs_only)

    def run(self, jobs: Iterable[Job]) -> Iterator[Finished]:
        """Every job's outcome, in the order in which they end."""
        source = iter(jobs)
        lanes = [_Lane(self, arm, guidance) for arm, guidance in self.arms().items()]
        backlog = 4 * max(self.layout.slots, self.tile)  # a lane that is far ahead waits for the other one
        under_way: dict[str, tuple[Look, dict[Arm, Ended]]] = {}
        dry = False
        while True:
            while not dry and any(not lane.waiting for lane in lanes) and all(len(lane.waiting) < backlog for lane in lanes):
                batch = list(itertools.islice(source, self.tile))
                dry = not batch
                for job, clean, row in self._start(batch):
                    under_way[job.image_id] = (clean, {})
                    for lane in lanes:
                        lane.waiting.append((job, row))
            for lane in lanes:
                for one in lane.advance():
                    clean, arms = under_way[one.job.image_id]
                    arms[lane.arm] = one
                    if len(arms) == len(lanes):
                        del under_way[one.job.image_id]
                        yield _finished(clean, [arms[other.arm] for other in lanes])
            if dry and not under_way:
                return

    def _start(self, batch: list[Job]) -> list[tuple[Job, Look, State]]:
        """Clean looks and starting states of up to one tile of jobs."""
        if not batch:
            return []
        padded = batch + [batch[-1]] * (self.tile - len(batch))
        images = torch.stack([job.image for job in padded]).to(self.device)
        labels = torch.tensor([job.label for job in padded], device=self.device)
        seeds = torch.tensor([job.seed for job in padded], device=self.device)
        with torch.no_grad():
            looks, _ = self.look(images, labels, names=[job.image_id for job in padded])
            with self.precision():
                state = self.generator.start(images, labels, seeds)
        return [(job, looks[row], {name: rows[row] for name, rows in state.items()}) for row, job in enumerate(batch)]

    def look(self, images: Tensor, labels: Tensor, *, names: Sequence[str]) -> tuple[list[Look], Tensor]:
        """What oracle and model say of a tile of pictures, and the model's losses with their graph.  # → (N,)"""
        with torch.no_grad(), self.precision():
            verdicts = self.oracle.judge(images.detach(), labels)
        with self.precision():
            logits = self.model.logits(images)
        truth = self.columns[labels]  # (N,)
        loss = F.cross_entropy(logits.float(), truth, reduction="none")  # (N,)
        with torch.no_grad():
            chance = logits.float().softmax(1)  # (N, K)
            confidence, top = chance.max(1)
            inside, where = (top[:, None] == self.columns).max(1)
            numbers = [loss, confidence, chance.gather(1, truth[:, None])[:, 0], verdicts.scores]
            choices = [torch.where(inside, where, -1), top == truth, verdicts.keeps_label, verdicts.predicted]
            floats = torch.stack([column.double() for column in numbers], 1).tolist()
            wholes = torch.stack([column.long() for column in choices], 1).tolist()
        looks = []
        for name, (cost, sure, known, score), (index, right, keeps, seen) in zip(names, floats, wholes, strict=True):
            if not math.isfinite(cost):
                raise RunFailed(f"{name}: the model's logits are not finite; check its weights, preprocessing and precision")
            looks.append(Look(cost, index, bool(right), sure, known, None if keeps < 0 else bool(keeps), score, seen))
        return looks, loss

    def precision(self) -> contextlib.AbstractContextManager[object]:
        """The number format parts compute in."""
        if self.layout.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


@dataclass(frozen=True)
class Ended:
    """One climb at its end, with the first and the last picture it kept."""

    job: Job
    climb: Climb
    first: Tensor
    last: Tensor
    place: Tensor  # of what moves


def _finished(clean: Look, arms: list[Ended]) -> Finished:
    climbs, pictures = tuple(arm.climb for arm in arms), tuple(arm.last for arm in arms)
    return Finished(arms[0].job, clean, arms[0].first, climbs, pictures, tuple(arm.place for arm in arms))


class _Lane:
    """One arm's slots, in tiles."""

    def __init__(self, engine: Engine, arm: Arm, guidance: Guidance) -> None:
        self.arm = arm
        self.waiting: deque[tuple[Job, State]] = deque()
        slots = range(engine.layout.slots)
        self.tiles = [_Tile(engine, arm, guidance, len(slots[at : at + engine.tile])) for at in slots[:: engine.tile]]

    def advance(self) -> list[Ended]:
        """One iteration of every slot: the climbs that ended."""
        return [ended for tile in self.tiles for ended in tile.advance(self.waiting)]


class _Tile:
    """Slots whose states are stacked, so that every call of a part has the same number of rows."""

    def __init__(self, engine: Engine, arm: Arm, guidance: Guidance, slots: int) -> None:
        self.engine, self.arm, self.guidance = engine, arm, guidance
        self.rules = engine.rules(guidance)
        self.slots: list[tuple[Job, Climb] | None] = [None] * slots
        self.labels = torch.zeros(engine.tile, dtype=torch.long, device=engine.device)
        self.base: State = {}  # where every image stands
        self.trial: State = {}  # what is rendered next: one step from there
        self.first = self.last = torch.empty(0)  # the pictures rendered first and kept last  # (N, 3, H, W)

    @property
    def busy(self) -> bool:
        return any(slot is not None for slot in self.slots)

    def advance(self, waiting: deque[tuple[Job, State]]) -> list[Ended]:
        self._refill(waiting)
        if not self.busy:
            return []
        moving = self.engine.generator.moving
        climbing = self.guidance.needs_gradient and self.rules.budget > 0
        names = [slot[0].image_id if slot else "an idle slot" for slot in self.slots]
        names += ["an idle row"] * (self.engine.tile - len(names))
        with torch.enable_grad() if climbing else torch.no_grad():
            leaf = self.trial[moving].detach().requires_grad_(climbing)
            with self.engine.precision():
                images = EightBits.apply(self.engine.generator.render({**self.trial, moving: leaf}).float())
            looks, loss = self.engine.look(images, self.labels, names=names)
        ended = self._take(looks, images.detach())
        if self.busy:
            self._propose(torch.autograd.grad(loss.sum(), leaf)[0].float() if climbing else None)
        return ended

    def _refill(self, waiting: deque[tuple[Job, State]]) -> None:
        for index, slot in enumerate(self.slots):
            if slot is None and waiting:
                job, row = waiting.popleft()
                self.slots[index] = (job, Climb(self.arm, self.rules))
                self.labels[index] = job.label
                if not self.trial:  # the first image fills every row, so that idle ones hold something harmless
                    self.trial = {name: values.expand(self.engine.tile, *values.shape).clone() for name, values in row.items()}
                    self.base = dict(self.trial)
                for name, values in row.items():
                    self.trial[name][index] = values

    def _take(self, looks: list[Look], images: Tensor) -> list[Ended]:
        """Keep or drop every picture; empty the slots of the climbs that ended."""
        fresh, moved = torch.zeros(2, self.engine.tile, dtype=torch.bool)
        for index, slot in enumerate(self.slots):
            if slot is not None:
                fresh[index] = slot[1].queries == 0
                moved[index] = slot[1].take(looks[index]) or fresh[index]
        fresh, moved = fresh.to(images.device), moved.to(images.device)
        if not self.last.numel():
            self.first = self.last = images
        self.first = torch.where(_like(fresh, images), images, self.first)
        self.last = torch.where(_like(moved, images), images, self.last)
        self.base = {name: torch.where(_like(moved, rows), rows, self.base[name]) for name, rows in self.trial.items()}
        ended = []
        for index, slot in enumerate(self.slots):
            if slot is not None and slot[1].ending is not None:
                kept = (self.first[index], self.last[index], self.base[self.engine.generator.moving][index])
                ended.append(Ended(*slot, *(rows.detach().cpu().clone() for rows in kept)))
                self.slots[index] = None
        return ended

    def _propose(self, gradient: Tensor | None) -> None:
        if gradient is not None and not torch.isfinite(gradient).all():
            raise RunFailed("the model's gradient is not finite; check its weights, or set precision=float32")
        generator = self.engine.generator
        idle = [None] * (self.engine.tile - len(self.slots))
        seeds = [slot[0].seed if slot else 0 for slot in [*self.slots, *idle]]
        draws = [slot[1].draw if slot else 0 for slot in [*self.slots, *idle]]
        with torch.no_grad():
            signal = self.guidance.direction(
                gradient, moving=self.base[generator.moving], scale=self.base["scale"], seeds=seeds, draws=draws
            )
            self.trial = dict(generator.step(self.base, signal))


class EightBits(torch.autograd.Function):
    """Rounds pictures to the 256 levels they are stored with; gradients pass as if it had not."""

    @staticmethod
    def forward(ctx: object, images: Tensor) -> Tensor:  # type: ignore[override]
        return (images.clamp(0, 1) * 255).round() / 255

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def _like(mask: Tensor, rows: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (rows.dim() - 1))
