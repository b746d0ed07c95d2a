"""Slots: the climbs that one arm has under way, stacked into tiles so that every call of a part has the same number of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterfoil.core.records import Arm
from counterfoil.engine.climb import Climb, Look, Rules
from counterfoil.engine.guidance import Guidance
from counterfoil.engine.step import Ascent, Outcome
from counterfoil.engine.transfers import Arriving, fetched, sent
from counterfoil.parts.contracts import State

FREE = 8  # one in so many of a tile's slots may be free for it to count as full


@dataclass(frozen=True)
class Job:
    """One image to be taken through every arm."""

    image_id: str
    image: Tensor  # (3, H, W)
    label: int  # in the run's classes
    seed: int


@dataclass(frozen=True)
class Ended:
    """One climb at its end, with the first and the last picture it kept."""

    job: Job
    climb: Climb
    first: Tensor
    last: Tensor
    place: Tensor  # of what moves


@dataclass(frozen=True)
class Way:
    """How the climbs of one arm go."""

    arm: Arm
    guidance: Guidance
    rules: Rules
    ascent: Ascent
    pipelined: bool  # what was launched is taken in a turn later


class Lane:
    """One arm's slots, in tiles, and the images that wait for one."""

    def __init__(self, way: Way, *, slots: int, rows: int) -> None:
        self.arm = way.arm
        self.waiting: deque[tuple[Job, State]] = deque()
        every = range(slots)
        self.tiles = [Tile(way, slots=len(every[at : at + rows]), rows=rows) for at in every[::rows]]

    def split(self, rows: int) -> None:
        """Go on with tiles of fewer rows. Nothing may be under way in them."""
        self.tiles = [part for tile in self.tiles for part in tile.split(rows)]


class Tile:
    """Slots whose states are stacked."""

    def __init__(self, way: Way, *, slots: int, rows: int) -> None:
        self.way, self.rows = way, rows
        self.slots: list[tuple[Job, Climb] | None] = [None] * slots
        self.labels = torch.zeros(rows, dtype=torch.long, device=way.ascent.device)
        self.base: State = {}  # where every image stands
        self.trial: State = {}  # what is rendered next: one step from there
        self.due = False  # whether a step from where images stand has to be taken first
        self.gradient: Tensor | None = None  # of the loss there, for that step
        self.first = self.last = torch.empty(0)  # the pictures rendered first and kept last  # (N, 3, H, W)
        self.under_way: Outcome | None = None
        self.leaving: list[Callable[[], Ended]] = []

    @property
    def busy(self) -> bool:
        return any(slot is not None for slot in self.slots)

    def full(self, waiting: int = 0) -> bool:
        """Whether few enough slots are free, or will be once those who wait have theirs, that an iteration is worth its price."""
        return sum(slot is None for slot in self.slots) - waiting <= len(self.slots) // FREE

    def propose(self) -> None:
        """The next pictures, one step from where images stand, if they are due. Without memory for it nothing has changed."""
        if not self.due:
            return
        generator = self.way.ascent.generator
        idle = [None] * (self.rows - len(self.slots))
        seeds = [slot[0].seed if slot else 0 for slot in [*self.slots, *idle]]
        draws = [slot[1].draw if slot else 0 for slot in [*self.slots, *idle]]
        with torch.no_grad():
            signal = self.way.guidance.direction(
                self.gradient, moving=self.base[generator.moving], scale=self.base["scale"], seeds=seeds, draws=draws
            )
            self.trial = self.way.ascent.move(self.base, signal)
        self.due, self.gradient = False, None

    def refill(self, waiting: deque[tuple[Job, State]]) -> None:
        """Put waiting images into free slots. One for which there is no memory goes on waiting."""
        for index, slot in enumerate(self.slots):
            if slot is None and waiting:
                job, row = waiting[0]
                self.labels[index] = job.label
                if not self.trial:  # the first image fills every row, so that idle ones hold something harmless
                    self.trial = {name: values.expand(self.rows, *values.shape).clone() for name, values in row.items()}
                    self.base = dict(self.trial)
                for name, values in row.items():
                    self.trial[name][index] = values
                self.slots[index] = (job, Climb(self.way.arm, self.way.rules))
                waiting.popleft()

    def launch(self) -> None:
        """Begin an iteration, if there is anything in the slots."""
        if self.busy:
            climbing = self.way.guidance.needs_gradient and self.way.rules.budget > 0
            self.under_way = self.way.ascent.step(self.trial, self.labels, climbing=climbing, names=self._names())

    def collect(self) -> list[Ended]:
        """Take in the iteration that was begun. The climbs that have left.

        Where work is pipelined a climb is handed out a turn after it ended, when its pictures have arrived.
        """
        left, self.leaving = self.leaving, []
        outcome, self.under_way = self.under_way, None
        if outcome is not None:
            self._take(outcome.looks(), outcome.images)
            self.due = self.busy
            self.gradient = outcome.gradient() if self.due and outcome.gradient is not None else None
        if not self.way.pipelined:
            left, self.leaving = [*left, *self.leaving], []
        return [one() for one in left]

    def split(self, rows: int) -> list[Tile]:
        """The same slots in tiles of `rows` rows."""
        parts = []
        for at in range(0, len(self.slots), rows):
            part = Tile(self.way, slots=0, rows=rows)
            part.slots = self.slots[at : at + rows]
            part.labels = _rows(self.labels, at, rows)
            part.base = {name: _rows(values, at, rows) for name, values in self.base.items()}
            part.trial = {name: _rows(values, at, rows) for name, values in self.trial.items()}
            part.due, part.gradient = self.due, None if self.gradient is None else _rows(self.gradient, at, rows)
            if self.last.numel():
                part.first, part.last = _rows(self.first, at, rows), _rows(self.last, at, rows)
            parts.append(part)
        parts[0].leaving = self.leaving
        return parts

    def _names(self) -> list[str]:
        names = [slot[0].image_id if slot else "an idle slot" for slot in self.slots]
        return names + ["an idle row"] * (self.rows - len(names))

    def _take(self, looks: Sequence[Look], images: Tensor) -> None:
        """Keep or drop every picture; empty the slots of the climbs that ended."""
        fresh, moved = torch.zeros(2, self.rows, dtype=torch.bool)
        for index, slot in enumerate(self.slots):
            if slot is not None:
                fresh[index] = slot[1].queries == 0
                moved[index] = slot[1].take(looks[index]) or fresh[index]
        fresh, moved = sent(torch.stack([fresh, moved]), images.device)
        if not self.last.numel():
            self.first = self.last = images
        self.first = torch.where(_like(fresh, images), images, self.first)
        self.last = torch.where(_like(moved, images), images, self.last)
        self.base = {name: torch.where(_like(moved, rows), rows, self.base[name]) for name, rows in self.trial.items()}
        place = self.base[self.way.ascent.generator.moving]
        for index, slot in enumerate(self.slots):
            if slot is not None and slot[1].ending is not None:
                kept = fetched([self.first[index], self.last[index], place[index]])
                self.leaving.append(_leaving(*slot, kept))
                self.slots[index] = None


def _leaving(job: Job, climb: Climb, kept: Arriving) -> Callable[[], Ended]:
    return lambda: Ended(job, climb, *kept())


def _rows(values: Tensor, at: int, rows: int) -> Tensor:
    """`rows` rows from `at` on, the last one repeated where there are too few."""
    part = values[at : at + rows]
    return torch.cat([part, part[-1:].expand(rows - len(part), *part.shape[1:])])


def _like(mask: Tensor, rows: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (rows.dim() - 1))
