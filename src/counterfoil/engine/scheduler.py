"""The scheduler for iterative search: Algorithm 1 on many images at once; here model, generator and oracle meet.

Each image is its own experiment, driven by its own seed. Images in progress sit in slots; one that ends is handed out and its
slot refilled at once. Parts are always called with the same number of rows, a batch, because floating-point kernels may round
differently for another batch size. With the batch size fixed, an image's result in float32 on a CPU does not depend on the
number of slots, on its neighbours, on the order, or on having been interrupted.

The control follows the guided climb: both begin with the same reconstruction, which is rendered and assessed once. A control at
matched distance begins when the guided climb has ended, any other one as soon as the reconstruction is accepted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, RunFailed
from counterfoil.core.records import Arm
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.climb import Assessment, Climb, Rules, as_agreement
from counterfoil.engine.device import GPU_BATCH, Pending, batch_that_fits, fetch, send
from counterfoil.engine.fast import Acceleration
from counterfoil.engine.guidance import GradientAscent, Guidance, RandomLine, RandomSearch, RandomSteps, Rows, StepLength
from counterfoil.engine.step import Step, StepResult
from counterfoil.parts.contracts import Generator, Model, Oracle, State

CPU_BATCH = 8
CPU_SLOTS = 32
FREE = 8  # one in so many of a batch's slots may be free for it to count as full
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One image to be taken through every arm."""

    image_id: str
    image: Tensor  # (3, H, W)
    label: int  # in the run's classes
    seed: int


@dataclass(frozen=True)
class SearchResult:
    """One image's climbs, with the answers about the clean image and the images they kept."""

    job: Job
    clean: Assessment
    reconstruction: Tensor  # (3, H, W)
    climbs: tuple[Climb, ...]  # one per arm, the guided one first
    images: tuple[Tensor, ...]  # kept last, one per arm  # (3, H, W)
    places: tuple[Tensor, ...] = ()  # where what moves came to rest, one per arm, if the engine was asked for them


@dataclass(frozen=True)
class Entry:
    """One image in one arm: it begins with its reconstruction, unless the climb already has the answers about that."""

    job: Job
    climb: Climb
    start: State  # one row
    lengths: tuple[float, ...] = ()  # of the steps, where they are given
    source: Assessment | None = None  # of the source image, where an image is accepted if the oracle says the same of it


@dataclass
class _Open:
    """An image in progress."""

    job: Job
    clean: Assessment | None = None
    start: State = field(default_factory=dict)
    ended: dict[Arm, tuple[Climb, list[Tensor]]] = field(default_factory=dict)  # first and last image, and the place


class _Source:
    """Jobs as they come, and those that have to be begun again."""

    def __init__(self, jobs: Iterable[Job | None]) -> None:
        self._jobs = iter(jobs)
        self.exhausted = False

    def first(self) -> Job | None:
        """The first job, which stays to be taken; None where there is none."""
        job = next((job for job in self._jobs if job is not None), None)  # nothing is in progress yet, so there is only waiting
        self.push_back([] if job is None else [job])
        return job

    def push_back(self, jobs: Iterable[Job]) -> None:
        """Have jobs come again, before all others."""
        self._jobs, self.exhausted = chain(list(jobs), self._jobs), False

    def batch(self, size: int) -> tuple[list[Job], bool]:
        """The next jobs, and whether they are fewer because no more come for the moment."""
        found: list[Job] = []
        for job in self._jobs:
            if job is None:
                return found, True
            found.append(job)
            if len(found) == size:
                return found, False
        self.exhausted = True
        return found, False


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
        keep_places: bool = False,
    ) -> None:
        """`columns[c]` is the model's output for the run's class `c`; the oracle is bound to the run's `classes`.

        `acceleration` is by default what the layout comes to on the device, for a run over so many `pixels` in all.
        """
        self.model, self.search, self.device, self.keep_places = model, search, torch.device(device), keep_places
        self.step_size = generator.step_size if search.step is None else search.step
        on_cpu = self.device.type == "cpu"
        # Two batches on a GPU: it works on one while the other one's climbs are looked at.
        self.slots = layout.slots or (CPU_SLOTS if on_cpu else 2 * (layout.batch_size or GPU_BATCH))
        self.batch_size = layout.batch_size or (CPU_BATCH if on_cpu else -(-self.slots // 2))
        self.pipelined = not on_cpu
        self.sized = on_cpu or layout.slots is not None or layout.batch_size is not None
        how = acceleration or Acceleration.of(layout, self.device, work=pixels * search.budget)
        if search.budget == 0:  # a single look
            how = replace(how, compile=False, graphs=False)
        parts = (model, generator, oracle)
        self.step = Step(*parts, columns=columns, device=self.device, acceleration=how, classes=classes)

    def arms(self) -> dict[Arm, Guidance]:
        """The arms every image goes through."""
        length, chosen = StepLength(self.step_size, self.search.norm, self.search.unit), self.search.guidance
        if chosen == "random":  # which is the control itself
            return {"guided": RandomSteps(length)}
        by_gradient = chosen == "gradient" or (chosen == "auto" and self.model.differentiable)
        arms: dict[Arm, Guidance] = {"guided": GradientAscent(length) if by_gradient else RandomSearch(length)}
        if self.search.control != "none":
            arms["random"] = RandomLine() if self.search.control == "distance" else RandomSteps(length)
        return arms

    @property
    def needs_gradient(self) -> bool:
        """True if any arm's steps follow a gradient."""
        return self.search.budget > 0 and any(guidance.needs_gradient for guidance in self.arms().values())

    def rules(self, guidance: Guidance) -> Rules:
        """The rules by which a climb under `guidance` ends."""
        proposals = 20 if guidance.climbs_only else 1  # a random step raises the loss about every other time
        queries = self.search.queries or proposals * self.search.budget + 1
        return Rules(self.search.budget, queries, self.search.stop_when_fooled, guidance.climbs_only)

    @property
    def capacity(self) -> int:
        """Images that keep every slot busy: those in slots, those that wait as one arm is ahead, and the next to be read."""
        return max(self.slots, self.batch_size) + 3 * self.batch_size

    def run(self, jobs: Iterable[Job | None]) -> Iterator[SearchResult]:
        """Every job's result, in the order in which they end.

        None among the jobs says that there are no more for the moment: those in progress continue. With nothing in progress,
        the caller with the jobs waits instead. Where memory does not suffice, the images in progress begin again, in smaller
        batches.
        """
        source = _Source(jobs)
        first = source.first()
        if first is None:
            return
        self.fit(first.image)
        while True:
            in_progress: dict[str, _Open] = {}
            try:
                yield from self._search(source, in_progress)
                return
            except torch.OutOfMemoryError:
                pass  # what it holds of the search is let go of before the next one
            self._halve_batch()
            source.push_back(each.job for each in in_progress.values())

    def _search(self, source: _Source, in_progress: dict[str, _Open]) -> Iterator[SearchResult]:
        arms = [_ArmSlots(self, arm, guidance) for arm, guidance in self.arms().items()]
        leaving: list[tuple[_ArmSlots, Entry, Pending]] = []
        while not source.exhausted or in_progress:
            self._feed(source, arms, in_progress)
            arrived, leaving = leaving, []
            for arm in arms:
                for batch in arm.batches:
                    for entry, pending in self._iterate(batch, arm, arms):
                        self._follow(entry, arms, in_progress)
                        if pending is not None:
                            leaving.append((arm, entry, pending))
            if not self.pipelined:
                arrived, leaving = leaving, []
            for arm, entry, pending in arrived:  # on a GPU a turn after they ended, when their images have been copied
                in_progress[entry.job.image_id].ended[arm.name] = (entry.climb, pending())
            yield from self._complete(arms, in_progress)

    def _feed(self, source: _Source, arms: list[_ArmSlots], in_progress: dict[str, _Open]) -> None:
        """Start new images while the first arm has none waiting and no other arm is a batch behind."""
        paused = False
        while not (source.exhausted or paused or arms[0].waiting or any(len(arm.waiting) >= self.batch_size for arm in arms)):
            batch, paused = source.batch(self.batch_size)
            for job in batch:
                if job.image_id in in_progress:
                    raise BadData(f"image id {job.image_id!r} was given twice; every image needs an id of its own")
                in_progress[job.image_id] = _Open(job)
            for job, clean, row in self._start(batch):
                opened = in_progress[job.image_id]
                opened.clean, opened.start = clean, row
                agrees_with = clean if self.search.accept == "agreement" else None
                arms[0].waiting.append(Entry(job, Climb(arms[0].name, arms[0].rules), row, source=agrees_with))

    def _start(self, batch: list[Job]) -> list[tuple[Job, Assessment, State]]:
        """Assessments of clean images, and where their climbs start."""
        if not batch:
            return []
        padded = batch + [batch[-1]] * (self.batch_size - len(batch))
        images = send(torch.stack([job.image for job in padded]), self.device)
        labels = send(torch.tensor([job.label for job in padded]), self.device)
        seeds = send(torch.tensor([job.seed for job in padded]), self.device)
        clean, state = self.step.start(images, labels, seeds, names=[job.image_id for job in padded])
        return [(job, clean[row], {name: rows[row] for name, rows in state.items()}) for row, job in enumerate(batch)]

    def _iterate(self, batch: _Batch, arm: _ArmSlots, arms: list[_ArmSlots]) -> list[tuple[Entry, Pending | None]]:
        """One iteration of a batch: the entries that were assessed, with their images where they ended.

        On a GPU an iteration is only launched here and taken in a turn later, so that the GPU works on one batch while another
        one's climbs are looked at. An iteration costs the same however few of the slots are taken; so a batch with many free
        ones, in the arm whose climbs are shorter, is put off as long as others are full.
        """
        found = batch.collect() if self.pipelined else []
        batch.refill(arm.waiting)
        if batch.busy and (batch.full() or not any(other.full(len(each.waiting)) for each in arms for other in each.batches)):
            batch.launch()
        return found if self.pipelined else batch.collect()

    def _follow(self, entry: Entry, arms: list[_ArmSlots], in_progress: dict[str, _Open]) -> None:
        """Put an image into the control arm once it may begin there."""
        if entry.climb.arm != arms[0].name or len(arms) == 1:
            return
        control, guided, job = arms[1], entry.climb, entry.job
        line = isinstance(control.guidance, RandomLine)
        if guided.ending is None if line else guided.queries > 1:
            return
        first = guided.kept[0] if guided.kept else guided.rejected
        assert first is not None
        rules, lengths = control.rules, tuple[float, ...]()
        if line:
            lengths = tuple(after.distance - before.distance for before, after in pairwise(guided.kept))
            rules = replace(rules, budget=len(lengths))
        climb = Climb(control.name, rules)
        if not control.guidance.needs_gradient or guided.ending == "unvalidated":  # else the gradient there is not known yet
            climb.record(first)
        opened = in_progress[job.image_id]
        if climb.ending is None:
            control.waiting.append(Entry(job, climb, opened.start, lengths, entry.source))
        else:
            opened.ended[control.name] = (climb, [])

    def _complete(self, arms: list[_ArmSlots], in_progress: dict[str, _Open]) -> Iterator[SearchResult]:
        """The results of images that have been through all arms."""
        for image_id in [name for name, opened in in_progress.items() if len(opened.ended) == len(arms)]:
            opened = in_progress.pop(image_id)
            assert opened.clean is not None
            climbs = tuple(opened.ended[arm.name][0] for arm in arms)
            (reconstruction, _, place), *_ = kept = [opened.ended[arm.name][1] for arm in arms]
            images = tuple(got[1] if climb.steps else reconstruction for climb, got in zip(climbs, kept, strict=True))
            places = tuple(got[2] if got else opened.start[self.step.generator.moving].cpu() for got in kept)
            yield SearchResult(opened.job, opened.clean, reconstruction, climbs, images, places if place.numel() else ())

    def _halve_batch(self) -> None:
        """Work in batches of half the size from here on."""
        if self.batch_size == 1:
            raise RunFailed(f"a single image does not fit into the memory of {self.device}; use smaller parts or another device")
        self.batch_size = -(-self.batch_size // 2)
        self.step.forget()
        log.warning("out of memory on %s: continuing with batches of %d", self.device, self.batch_size)

    def check_gradient(self, job: Job) -> None:
        """Refuse a model or a generator without a gradient, by one step of one image."""
        label, seed = torch.tensor([[job.label], [job.seed]], device=self.device)
        _, state = self.step.start(job.image[None].to(self.device), label, seed, names=[job.image_id])
        found = self.step.run(state, label, gradient=True, names=[job.image_id])
        if found.gradient is not None:
            found.gradient()

    def fit(self, image: Tensor) -> None:
        """On a GPU, as many slots for such images as fit, unless a number was given.  # (3, H, W)"""
        if self.sized:
            return
        self.sized = True
        self.batch_size = batch_that_fits(self.step, image, most=self.batch_size, gradient=self.needs_gradient)
        self.slots = 2 * self.batch_size
        log.info("%d slots on %s, in two batches", self.slots, self.device)


class _ArmSlots:
    """One arm: its guidance, its slots in batches, and the images that wait for one."""

    def __init__(self, engine: Engine, name: Arm, guidance: Guidance) -> None:
        self.name, self.guidance, self.rules = name, guidance, engine.rules(guidance)
        self.step, self.keep_places = engine.step, engine.keep_places
        self.waiting: deque[Entry] = deque()
        every, rows = range(engine.slots), engine.batch_size
        self.batches = [_Batch(self, slots=len(every[at : at + rows]), rows=rows) for at in every[::rows]]


class _Batch:
    """Slots whose states are stacked, so that every call of a part has the same number of rows."""

    def __init__(self, arm: _ArmSlots, *, slots: int, rows: int) -> None:
        self.arm, self.rows = arm, rows
        self.slots: list[Entry | None] = [None] * slots
        self.labels = torch.zeros(rows, dtype=torch.long, device=arm.step.device)
        self.base: State = {}  # where every image stands
        self.trial: State = {}  # what is rendered: one step from there
        self.origin = torch.empty(0)  # where what moves began
        self.gradient: Tensor | None = None  # of the loss where images stand
        self.first = self.last = torch.empty(0)  # the images rendered first and kept last  # (N, 3, H, W)
        self.launched: StepResult | None = None

    @property
    def busy(self) -> bool:
        return any(self.slots)

    def full(self, waiting: int = 0) -> bool:
        """True if few enough slots are free, or will be once those who wait have theirs, that an iteration is worth its price."""
        return self.slots.count(None) - waiting <= len(self.slots) // FREE

    def refill(self, waiting: deque[Entry]) -> None:
        """Put waiting images into free slots."""
        moving = self.arm.step.generator.moving
        for index, slot in enumerate(self.slots):
            if slot is None and waiting:
                entry = self.slots[index] = waiting.popleft()
                self.labels[index] = entry.job.label
                if not self.base:  # the first image fills every row, so that idle ones hold something harmless
                    self.base = {name: row.expand(self.rows, *row.shape).clone() for name, row in entry.start.items()}
                    self.origin = self.base[moving].clone()
                for name, row in entry.start.items():
                    self.base[name][index] = row
                self.origin[index] = entry.start[moving]

    def launch(self) -> None:
        """Begin an iteration: a step from where images stand, unless they have just begun, and the answers about it."""
        entries: list[Entry | None] = [*self.slots, *[None] * (self.rows - len(self.slots))]
        moves = torch.tensor([entry is not None and entry.climb.queries > 0 for entry in entries])
        self.trial = self._move(entries, moves) if moves.any() else dict(self.base)
        names = [entry.job.image_id if entry else "an idle row" for entry in entries]
        gradient = self.arm.guidance.needs_gradient and self.arm.rules.budget > 0
        self.launched = self.arm.step.run(self.trial, self.labels, gradient=gradient, names=names, origin=self.origin)

    @torch.no_grad()
    def _move(self, entries: Sequence[Entry | None], moves: Tensor) -> State:
        step = self.arm.step
        rows = Rows(
            self.base[step.generator.moving],
            self.base["scale"],
            [entry.job.seed if entry else 0 for entry in entries],
            [entry.climb.draw_number if entry else 0 for entry in entries],
            [entry.lengths[entry.climb.steps] if entry and entry.lengths else 0.0 for entry in entries],
        )
        moved = step.move(self.base, self.arm.guidance.direction(self.gradient, rows))
        self.gradient = None
        return moved if moves.all() else _pick(send(moves, step.device), moved, self.base)

    def collect(self) -> list[tuple[Entry, Pending | None]]:
        """Take in the iteration that was begun: the entries that were assessed, with their images where they ended."""
        result, self.launched = self.launched, None
        if result is None:
            return []
        fresh, kept = torch.zeros(2, self.rows, dtype=torch.bool)
        assessed = [(index, entry) for index, entry in enumerate(self.slots) if entry is not None]
        found = result.assessments()
        for index, entry in assessed:
            fresh[index] = entry.climb.queries == 0
            answer = found[index] if entry.source is None else as_agreement(found[index], entry.source)
            kept[index] = entry.climb.record(answer) or fresh[index]
        fresh, kept = send(torch.stack([fresh, kept]), result.images.device)
        if not self.last.numel():
            self.first = self.last = result.images
        self.first = torch.where(_like(fresh, result.images), result.images, self.first)
        self.last = torch.where(_like(kept, result.images), result.images, self.last)
        self.base = _pick(kept, self.trial, self.base)
        ended = [self._leave(index) if entry.climb.ending else None for index, entry in assessed]
        self.gradient = result.gradient() if self.busy and result.gradient is not None else None
        return [(entry, pending) for (_, entry), pending in zip(assessed, ended, strict=True)]

    def _leave(self, index: int) -> Pending:
        """Free a slot; its first and last image and, if wanted, where what moves came to rest."""
        place = self.base[self.arm.step.generator.moving][index] if self.arm.keep_places else self.origin.new_empty(0)
        self.slots[index] = None
        return fetch([self.first[index], self.last[index], place])


def _pick(mask: Tensor, chosen: State, other: State) -> State:
    """Row by row one state or the other."""
    return {name: torch.where(_like(mask, rows), rows, other[name]) for name, rows in chosen.items()}


def _like(mask: Tensor, rows: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (rows.dim() - 1))
