"""The slot scheduler for iterative search; here and in `ascent.py`, and nowhere else, model, generator and oracle meet.

It runs Algorithm 1 of the FMR paper on many images at once. Each image is its own experiment, driven by its own seed.
Images under way sit in slots; one that ends is handed out and its slot refilled at once. An iteration renders every
picture once: the one the oracle judges is the one the gradient flows through, rounded to the 8 bits it is stored with.

Parts are always called with the same number of rows, a tile, because floating-point kernels may round differently for
another batch size. With the tile fixed, an image's result in float32 on a CPU does not depend on the number of slots,
on its neighbours, on the order, or on having been interrupted.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, RunFailed
from counterfoil.core.records import Arm
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.climb import Climb, Look, Rules
from counterfoil.engine.guidance import GradientAscent, Guidance, RandomSearch, RandomSteps, StepLength
from counterfoil.engine.memory import CPU_SLOTS, GPU_TILE, rows_that_fit
from counterfoil.engine.slots import Ended, Job, Lane, Tile, Way
from counterfoil.engine.step import Ascent, EightBits
from counterfoil.engine.transfers import sent
from counterfoil.parts.contracts import Generator, Model, Oracle, State
from counterfoil.parts.fast.settings import Acceleration

__all__ = ["CPU_TILE", "EightBits", "Ended", "Engine", "Finished", "Job"]

CPU_TILE = 8
log = logging.getLogger(__name__)


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
        pixels: int = 0,
        acceleration: Acceleration | None = None,
        classes: int | None = None,
    ) -> None:
        """`columns[c]` is the model's output for the run's class `c`; the oracle is bound to the run's `classes`.

        `acceleration` is by default what the layout comes to on the device, for a run over so many `pixels` in all.
        """
        self.model, self.search, self.device = model, search, torch.device(device)
        on_cpu = self.device.type == "cpu"
        # Two tiles on a GPU: it works on one while the other one's climbs are looked at.
        self.slots = layout.slots or (CPU_SLOTS if on_cpu else 2 * (layout.tile or GPU_TILE))
        self.tile = layout.tile or (CPU_TILE if on_cpu else -(-self.slots // 2))
        self.pipelined = not on_cpu
        self.sized = on_cpu or layout.slots is not None or layout.tile is not None
        how = acceleration or Acceleration.of(layout, self.device, work=pixels * search.budget)
        if search.budget == 0:  # a single look
            how = replace(how, compile=False, graphs=False)
        parts = (model, generator, oracle)
        self.ascent = Ascent(*parts, columns=columns, device=self.device, acceleration=how, classes=classes)

    def arms(self) -> dict[Arm, Guidance]:
        """The arms every image goes through."""
        length = StepLength(self.search.step, self.search.norm, self.search.unit)
        arms: dict[Arm, Guidance] = {"guided": self._guided(length)}
        if self.search.control and self.search.guidance != "random":  # which is the control itself
            arms["random"] = RandomSteps(length)
        return arms

    def _guided(self, length: StepLength) -> Guidance:
        chosen = self.search.guidance
        if chosen == "random":
            return RandomSteps(length)
        by_gradient = chosen == "gradient" or (chosen == "auto" and self.model.differentiable)
        return GradientAscent(length) if by_gradient else RandomSearch(length)

    @property
    def climbing(self) -> bool:
        """Whether any arm's steps follow a gradient."""
        return self.search.budget > 0 and any(guidance.needs_gradient for guidance in self.arms().values())

    def rules(self, guidance: Guidance) -> Rules:
        """When a climb under `guidance` ends."""
        proposals = 20 if guidance.climbs_only else 1  # a random step raises the loss about every other time
        queries = self.search.queries or proposals * self.search.budget + 1
        return Rules(self.search.budget, queries, self.search.stop_when_fooled, guidance.climbs_only)

    @property
    def room(self) -> int:
        """How many images keep every slot busy: those in slots, those that wait as one arm is ahead, and the next to be read."""
        return max(self.slots, self.tile) + 3 * self.tile

    def run(self, jobs: Iterable[Job | None]) -> Iterator[Finished]:
        """Every job's outcome, in the order in which they end.

        None among the jobs says that there are no more for the moment: those under way go on. With nothing under way, whoever
        brings the jobs waits instead.
        """
        source = iter(jobs)
        first = next((job for job in source if job is not None), None)  # nothing is under way yet, so there is only waiting
        if first is None:
            return
        self.fit(first.image)
        source = itertools.chain([first], source)
        ways = [Way(arm, guidance, self.rules(guidance), self.ascent, self.pipelined) for arm, guidance in self.arms().items()]
        lanes = [Lane(way, slots=self.slots, rows=self.tile) for way in ways]
        under_way: dict[str, tuple[Look, dict[Arm, Ended]]] = {}
        dry = False
        while not dry or under_way:
            paused = False
            while not (dry or paused) and any(not lane.waiting for lane in lanes) and not any(map(self._behind, lanes)):
                batch, paused = self._batch(source)
                dry = not (batch or paused)
                for job, clean, row in self._started(batch):
                    if job.image_id in under_way:
                        raise BadData(f"image id {job.image_id!r} was given twice; every image needs an id of its own")
                    under_way[job.image_id] = (clean, {})
                    for lane in lanes:
                        lane.waiting.append((job, row))
            for arm, one in self._turn(lanes):
                clean, arms = under_way[one.job.image_id]
                arms[arm] = one
                if len(arms) == len(lanes):
                    del under_way[one.job.image_id]
                    yield _finished(clean, [arms[lane.arm] for lane in lanes])

    def _batch(self, source: Iterator[Job | None]) -> tuple[list[Job], bool]:
        """The next tile's jobs, and whether they are fewer because no more come for the moment."""
        batch: list[Job] = []
        for job in itertools.islice(source, self.tile):
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _behind(self, lane: Lane) -> bool:
        """Whether so many images wait for a lane that the others, which are ahead, get none for a while."""
        return len(lane.waiting) >= self.tile

    def _turn(self, lanes: list[Lane]) -> Iterator[tuple[Arm, Ended]]:
        """One iteration of every tile that is full enough, or of all if none is: the climbs that left.

        Pipelined, on a GPU, a tile's iteration is only launched here and taken in a turn later, so that the card works on one
        tile while another one's climbs are looked at.
        """
        tight = any(tile.rows != self.tile for lane in lanes for tile in lane.tiles)  # starting took too much memory
        for lane in lanes:
            for tile in [] if tight else lane.tiles:
                if self.pipelined:
                    yield from ((lane.arm, one) for one in tile.collect())
                tight = tight or not self._launched(tile, lane, lanes)
                if not self.pipelined:
                    yield from ((lane.arm, one) for one in tile.collect())
        if tight:
            for lane in lanes:
                for tile in lane.tiles:
                    yield from ((lane.arm, one) for one in tile.collect())
                lane.split(self.tile)

    def _launched(self, tile: Tile, lane: Lane, lanes: list[Lane]) -> bool:
        """Whether there was memory enough for the tile's next iteration.

        An iteration costs the same however few of the slots are taken. So one with many free slots, in the lane of an arm whose
        climbs are shorter, is put off as long as others are full.
        """
        try:
            tile.propose()
            tile.refill(lane.waiting)
            if tile.full() or not any(other.full(len(each.waiting)) for each in lanes for other in each.tiles):
                tile.launch()
        except torch.OutOfMemoryError:
            self._halve(tile.rows)
            return False
        return True

    def _started(self, batch: list[Job]) -> Iterator[tuple[Job, Look, State]]:
        """Clean looks and starting states of jobs, a tile at a time."""
        while batch:
            some = batch[: self.tile]
            try:
                started = self._start(some)
            except torch.OutOfMemoryError:
                self._halve(self.tile)
                continue
            yield from started
            batch = batch[len(some) :]

    def _start(self, batch: list[Job]) -> list[tuple[Job, Look, State]]:
        padded = batch + [batch[-1]] * (self.tile - len(batch))
        images = sent(torch.stack([job.image for job in padded]), self.device)
        labels = sent(torch.tensor([job.label for job in padded]), self.device)
        seeds = sent(torch.tensor([job.seed for job in padded]), self.device)
        looks, state = self.ascent.start(images, labels, seeds, names=[job.image_id for job in padded])
        return [(job, looks[row], {name: rows[row] for name, rows in state.items()}) for row, job in enumerate(batch)]

    def _halve(self, rows: int) -> None:
        """Work on half as many images at a time from here on."""
        if rows == 1:
            raise RunFailed(f"a single image does not fit into the memory of {self.device}; use smaller parts or another device")
        self.tile = min(self.tile, -(-rows // 2))
        self.ascent.forget()
        log.warning("out of memory on %s: images are worked on %d at a time from here on", self.device, self.tile)

    def check_gradient(self, job: Job) -> None:
        """Refuse a model or a generator without a gradient, by one step of one image."""
        images, labels, seeds = (torch.stack([job.image]), torch.tensor([job.label]), torch.tensor([job.seed]))
        labels = labels.to(self.device)
        _, state = self.ascent.start(images.to(self.device), labels, seeds.to(self.device), names=[job.image_id])
        outcome = self.ascent.step(state, labels, climbing=True, names=[job.image_id])
        if outcome.gradient is not None:
            outcome.gradient()

    def fit(self, image: Tensor) -> None:
        """On a GPU, as many slots for such images as fit, unless somebody said how many.  # (3, H, W)"""
        if self.sized:
            return
        self.sized = True
        fit = rows_that_fit(self.ascent, image, most=self.tile, climbing=self.climbing)
        if fit.recompute:
            self.ascent.recompute()
        self.slots, self.tile = 2 * fit.rows, fit.rows
        log.info("%d slots on %s, in two tiles", self.slots, self.device)


def _finished(clean: Look, arms: list[Ended]) -> Finished:
    climbs, pictures = tuple(arm.climb for arm in arms), tuple(arm.last for arm in arms)
    return Finished(arms[0].job, clean, arms[0].first, climbs, pictures, tuple(arm.place for arm in arms))
