"""Time a set-up's parts and whole runs of a few images, and predict how long a run takes."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import BadData, RunFailed
from counterfoil.core.spec import RunSpec
from counterfoil.doctor.sample import FewImages, read_few
from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Engine
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.protocols.workspace import Given, Workspace

IMAGES = 32  # timed on a CPU unless others are asked for
STAGED_IMAGES = 8
ROUNDS = 3  # times the slots are filled on a GPU: with fewer images most rows of a batch would be idle for most of the time


@dataclass(frozen=True)
class PartSpeed:
    """Seconds per image."""

    model: float
    step: float  # render, ask, and the gradient back through both; 0 for a black box
    rendering: float
    oracle: float


@dataclass(frozen=True)
class TimeShare:
    """One part or stage: how often an image needs it, and the seconds that takes."""

    name: str
    times: float  # calls or items per image
    seconds: float  # per image


@dataclass(frozen=True)
class Timing:
    """A protocol on this machine."""

    protocol: str
    images: int
    seconds: float  # per image, of computing
    shares: Sequence[TimeShare]
    slots: int = 0  # images in progress at a time, where there are slots
    once: dict[str, float] = field(default_factory=dict)  # seconds that a run takes once, however many images it has
    around: float = 0.0  # seconds per image that reading, storing and statistics add to it

    def predict(self, images: int) -> float:
        """Seconds for a whole run of so many images like these."""
        return sum(self.once.values()) + (self.seconds + self.around) * images

    def images_in(self, seconds: float) -> int:
        """Images that a whole run gets through in so many seconds."""
        return max(0, int((seconds - sum(self.once.values())) / max(self.seconds + self.around, 1e-9)))


def time_protocol(spec: RunSpec, images: int | None = None, given: Given | None = None) -> Timing:
    """Time a protocol over a few images, by default as many as it needs, or as many as there are."""
    return _time_climbs(spec, images, given) if hasattr(spec, "generator") else _time_stages(spec, images or STAGED_IMAGES)


def enough(engine: Engine) -> int:
    """Number of images that tell how long a run takes on an engine."""
    return IMAGES if engine.device.type == "cpu" else ROUNDS * engine.slots


def _time_climbs(spec: Any, images: int | None, given: Given | None) -> Timing:
    """The engine as a run uses it, each part alone, and a small run for what happens around the engine."""
    lap = _stopwatch()
    assembly = protocols.get(spec.protocol).workspace(spec, given)
    engine = assembly.new_engine()
    once = {"loading": lap()}

    def climb(count: int) -> tuple[list[Any], float]:
        """The climbs of so many images, and the seconds that computing took."""
        jobs = list(assembly.jobs(iter(assembly.dataset.limit(count=count)), lambda sample, problem: None))
        if not jobs:
            raise BadData(f"{spec.data.name}: none of {count} images can be read")
        lap()
        finished = list(engine.run(jobs))
        synchronize(spec.device)
        return finished, lap()

    warm, warming = climb(min(images or engine.batch_size, engine.batch_size))  # on a GPU this sizes and compiles
    finished, whole = climb(images or enough(engine))
    count, seconds = len(finished), whole / len(finished)
    once["sizing and compiling"] = max(warming - seconds * len(warm), 0.0)
    parts = {"model": assembly.model, "generator": assembly.generator, "oracle": assembly.oracle, "dataset": assembly.dataset}
    starting, around = _around(spec, count, Given(parts), seconds)
    once["starting, storing and statistics"] = max(starting - once["sizing and compiling"], 0.0)
    alone = measure(assembly, read_few(assembly, min(count, engine.batch_size)), steps=engine.needs_gradient, engine=engine)
    guided = sum(one.climbs[0].queries for one in finished) / count
    every = guided + sum(climb.queries for one in finished for climb in one.climbs[1:]) / count
    steps = guided if alone.step else 0.0
    times = {
        "a guided step: render, ask the model, gradient": (steps, alone.step),
        "render without a gradient": (every - steps, alone.rendering),
        "ask the model without a gradient": (1 + every - steps, alone.model),
        "ask the oracle": (1 + every, alone.oracle),
    }
    shares = [TimeShare(name, calls, calls * each) for name, (calls, each) in times.items()]
    return Timing(spec.protocol, count, seconds, shares, engine.slots, once, around)


def _around(spec: Any, images: int, given: Given, computing: float) -> tuple[float, float]:
    """Seconds of a whole run beyond the computing per image, once and per image, from two runs of which one is half as long."""
    few = max(images // 2, 1)
    first = _run_whole(spec, few, given) - computing * few
    if few == images:
        return max(first, 0.0), 0.0
    each = max((_run_whole(spec, images, given) - computing * images - first) / (images - few), 0.0)
    return max(first - each * few, 0.0), each


def _run_whole(spec: Any, images: int, given: Given) -> float:
    """Seconds of a run over a few images with parts that are loaded, in a folder that is thrown away."""
    lap = _stopwatch()
    with tempfile.TemporaryDirectory(prefix="counterfoil-timing-") as folder:
        protocols.run(spec.model_copy(update={"limit": images}), Path(folder) / "run", given=given)
    return lap()


def _time_stages(spec: Any, images: int) -> Timing:
    """All stages over a few images, in a folder that is thrown away."""
    counts: dict[str, int] = {}
    starts: dict[str, float] = {}  # a stage is told of when it begins, and after each batch
    ends: dict[str, float] = {}

    def watch(progress: Any) -> None:
        now = time.perf_counter()
        starts.setdefault(progress.stage, now)
        counts[progress.stage], ends[progress.stage] = progress.done, now

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="counterfoil-timing-") as folder:
        protocols.run(spec.model_copy(update={"limit": images}), Path(folder) / "run", watch=watch)
    whole = time.perf_counter() - began
    there = next(iter(counts.values()), 0)  # what the first stage takes in: with little data fewer than asked for
    if not there:
        raise BadData(f"{spec.protocol}: there are no images to time; check its data or grid")
    shares = [TimeShare(name, counts[name] / there, (ends[name] - start) / there) for name, start in starts.items()]
    seconds, loading = sum(share.seconds for share in shares), next(iter(starts.values())) - began
    rest = max(whole - loading - seconds * there, 0.0)
    return Timing(spec.protocol, there, seconds, shares, once={"loading": loading, "storing and statistics": rest})


def measure(assembly: Workspace[Any], few: FewImages, *, steps: bool, engine: Engine | None = None) -> PartSpeed:
    """The parts' speed on one batch of an engine, after a first call that warms them up; that of a guided step if asked.

    They compute as the engine has them compute, but for compiler and graphs, which take their time before the first step.
    """
    engine = engine or assembly.new_engine()
    rows = min(len(few), engine.batch_size)
    while True:
        try:
            return _measure(engine, few.rows(slice(0, rows)), steps=steps)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise RunFailed(
                    f"a single image does not fit into the memory of {engine.device}; use smaller parts or another device"
                ) from None
            rows = -(-rows // 2)
        if engine.device.type == "cuda":
            torch.cuda.empty_cache()


def _measure(engine: Engine, some: FewImages, *, steps: bool) -> PartSpeed:
    model, generator, oracle = engine.step.model, engine.step.generator, engine.step.oracle
    computing = engine.step.acceleration.computing
    with torch.no_grad(), computing(engine.device, low=False):
        state = generator.start(some.images, some.labels, some.seeds)

    def step() -> Tensor | None:
        leaf = state[generator.moving].detach().requires_grad_()
        images = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}).float())
        loss = F.cross_entropy(model.logits(images).float(), some.truth)
        return torch.autograd.grad(loss, leaf, allow_unused=True)[0]

    def seconds(work: Callable[[], object], *, slopes: bool = False) -> float:
        def once() -> None:
            with torch.set_grad_enabled(slopes), computing(engine.device):  # entered for each call, as in a run
                work()

        once()
        synchronize(engine.device)
        lap = _stopwatch()
        once()
        synchronize(engine.device)
        return lap() / len(some)

    return PartSpeed(
        model=seconds(lambda: model.logits(some.images)),
        step=seconds(step, slopes=True) if steps else 0.0,
        rendering=seconds(lambda: generator.render(state)),
        oracle=seconds(lambda: oracle.judge(some.images, some.labels)),
    )


def cost_rows(assembly: Workspace[Any], few: FewImages, *, steps: bool) -> dict[str, str]:
    """The parts' speed, the memory they take, and the longest that computing can take."""
    found = measure(assembly, few, steps=steps)
    speeds = {"model": found.model, "oracle": found.oracle, "rendering": found.rendering, "one guided step": found.step}
    rows = {name: f"{1000 * seconds:.1f} ms per image" for name, seconds in speeds.items() if seconds}
    rows["peak memory"] = _peak_memory(assembly.spec.device)
    longest = duration(_longest(assembly, found))
    rows["computing, at most"] = f"{longest} for {len(assembly.dataset)} images; --time measures whole runs, loading included"
    return rows


def _longest(assembly: Workspace[Any], speed: PartSpeed) -> float:
    """Seconds that the parts compute at most in the whole run; climbs that the oracle ends early take less."""
    calls = protocols.get(assembly.spec.protocol).cost(assembly.spec, len(assembly.dataset))
    gradients = calls["of these with a gradient"] if speed.step else 0
    asked = max(calls["model calls, at most"] - gradients, 0) * speed.model
    rendered = max(calls["images rendered, at most"] - gradients, 0) * speed.rendering
    return asked + rendered + gradients * speed.step + calls["oracle verdicts, at most"] * speed.oracle


def _peak_memory(device: str) -> str:
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    text = f"{held / 2**30:.2f} GiB of main memory"
    if torch.device(device).type == "cuda":
        text += f", {torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB on the GPU"
    return text


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _stopwatch() -> Callable[[], float]:
    """A function that answers the seconds since it was called last, or made."""
    before = time.perf_counter()

    def lap() -> float:
        nonlocal before
        last, before = before, time.perf_counter()
        return before - last

    return lap
