"""What this machine will do: a few images through a protocol, timed part by part and as a whole."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil import protocols
from counterfoil.core.errors import BadData
from counterfoil.core.spec import FmrSpec, RunSpec
from counterfoil.doctor.sample import handful
from counterfoil.doctor.speed import measure
from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Engine, Job
from counterfoil.protocols.assembly import assemble

IMAGES = 32
STAGED_IMAGES = {"lance": 8, "imagenet-d": 24}
"""Images that are timed of a protocol unless others are asked for: enough for a first number, few enough to wait for."""
ROUNDS = 3  # times the slots are filled on a GPU: with fewer images most of a tile's rows would be idle for most of the time


@dataclass(frozen=True)
class Share:
    """One part or stage: how often an image needs it, and the seconds that takes."""

    name: str
    times: float  # calls or items an image
    seconds: float  # an image


@dataclass(frozen=True)
class Measured:
    """A protocol on this machine."""

    protocol: str
    images: int
    seconds: float  # an image, as a run goes
    shares: Sequence[Share]
    slots: int = 0  # images under way at a time, where there are slots

    def predicted(self, images: int) -> float:
        """Seconds for so many images like these."""
        return self.seconds * images


def measured(spec: RunSpec, images: int | None = None) -> Measured:
    """A protocol over a few images, by default as many as it needs, or as many as there are.

    FMR: the engine alone, warmed up; what reads and stores works beside it. Other protocols: every stage from its first image on.
    """
    return _climbing(spec, images) if isinstance(spec, FmrSpec) else _staged(spec, images or STAGED_IMAGES[spec.protocol])


def enough(engine: Engine) -> int:
    """How many images say how long a run takes on an engine."""
    return IMAGES if engine.device.type == "cpu" else ROUNDS * engine.slots


def _climbing(spec: FmrSpec, images: int | None) -> Measured:
    """The engine as a run uses it, and beside it the parts by themselves."""
    assembly = assemble(spec)
    engine = assembly.engine()

    def read(count: int) -> list[Job]:
        jobs = list(assembly.jobs(iter(assembly.dataset.limited(count=count)), lambda sample, problem: None))
        if not jobs:
            raise BadData(f"{spec.data.name}: none of {count} pictures can be read")
        return jobs

    for _ in engine.run(
        read(min(images or engine.batch_size, engine.batch_size))
    ):  # on a GPU this also finds out how many slots fit
        pass
    jobs = read(images or enough(engine))
    synchronize(spec.device)
    began = time.perf_counter()
    finished = list(engine.run(jobs))
    synchronize(spec.device)
    seconds = (time.perf_counter() - began) / len(jobs)
    few = handful(assembly, min(len(jobs), engine.batch_size))
    alone = measure(assembly, few, climbs=engine.needs_gradient, engine=engine)
    guided = sum(one.climbs[0].queries for one in finished) / len(jobs)
    others = sum(climb.queries for one in finished for climb in one.climbs[1:]) / len(jobs)
    steps = guided if alone.climbing else 0.0
    shares = [
        Share("a guided step: render, ask the model, gradient", steps, steps * alone.climbing),
        Share("render without a gradient", guided + others - steps, (guided + others - steps) * alone.rendering),
        Share("ask the model without a gradient", 1 + guided + others - steps, (1 + guided + others - steps) * alone.model),
        Share("ask the oracle", 1 + guided + others, (1 + guided + others) * alone.oracle),
    ]
    return Measured(spec.protocol, len(jobs), seconds, shares, engine.slots)


def _staged(spec: RunSpec, images: int) -> Measured:
    """All stages over a few images, in a folder that is thrown away."""
    counts: dict[str, int] = {}
    starts: dict[str, float] = {}  # a stage is told of when it begins, and after each batch
    ends: dict[str, float] = {}

    def watch(progress: Any) -> None:
        now = time.perf_counter()
        starts.setdefault(progress.stage, now)
        counts[progress.stage], ends[progress.stage] = progress.done, now

    limited = spec.model_copy(update={"limit": images})
    with tempfile.TemporaryDirectory(prefix="counterfoil-bench-") as folder:
        protocols.run(limited, Path(folder) / "run", watch=watch)
    there = next(iter(counts.values()), 0)  # what the first stage takes in: with little data fewer than asked for
    if not there:
        raise BadData(f"{spec.protocol}: there are no images to time; check its data or grid")
    shares = [Share(name, counts[name] / there, (ends[name] - start) / there) for name, start in starts.items()]
    return Measured(spec.protocol, there, sum(share.seconds for share in shares), shares)
