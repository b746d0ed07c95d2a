"""How long each part takes, and from that how long the whole run will."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.doctor.sample import Handful
from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Engine
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.protocols.assembly import Assembly
from counterfoil.protocols.fmr import fmr


@dataclass(frozen=True)
class Speed:
    """Seconds for one picture."""

    model: float
    climbing: float  # render, ask, and the gradient back through both; 0 for a black box
    rendering: float
    oracle: float


def measure(assembly: Assembly, few: Handful, *, climbs: bool, engine: Engine | None = None) -> Speed:
    """The parts' speed on one tile of an engine, after a first call that warms them up; that of a guided step if it `climbs`.

    They compute as the engine has them compute, but for compiler and graphs, which take their time before the first step.
    """
    engine = engine or assembly.engine()
    rows = min(len(few), engine.batch_size)
    while True:
        try:
            return _measured(engine, few.rows(slice(0, rows)), climbs=climbs)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise RunFailed(
                    f"a single image does not fit into the memory of {engine.device}; use smaller parts or another device"
                ) from None
            rows = -(-rows // 2)
        if engine.device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(engine: Engine, some: Handful, *, climbs: bool) -> Speed:
    model, generator, oracle = engine.step.model, engine.step.generator, engine.step.oracle
    computing = engine.step.acceleration.computing
    with torch.no_grad(), computing(engine.device, low=False):
        state = generator.start(some.images, some.labels, some.seeds)

    def climb() -> Tensor | None:
        leaf = state[generator.moving].detach().requires_grad_()
        pictures = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}).float())
        loss = F.cross_entropy(model.logits(pictures).float(), some.truth)
        return torch.autograd.grad(loss, leaf, allow_unused=True)[0]

    def seconds(work: Callable[[], object], *, slopes: bool = False) -> float:
        def once() -> None:
            with torch.set_grad_enabled(slopes), computing(engine.device):  # entered anew for each call, as in a run
                work()

        return _seconds(once, engine.device) / len(some)

    return Speed(
        model=seconds(lambda: model.logits(some.images)),
        climbing=seconds(climb, slopes=True) if climbs else 0.0,
        rendering=seconds(lambda: generator.render(state)),
        oracle=seconds(lambda: oracle.judge(some.images, some.labels)),
    )


def predicted(assembly: Assembly, speed: Speed) -> float:
    """Seconds the whole run takes at most; climbs that the oracle ends early take less."""
    calls = fmr.cost(assembly.spec, len(assembly.dataset))
    gradients = calls["of these with a gradient"] if speed.climbing else 0
    asked = max(calls["model calls, at most"] - gradients, 0) * speed.model
    rendered = max(calls["images rendered, at most"] - gradients, 0) * speed.rendering
    return asked + rendered + gradients * speed.climbing + calls["oracle verdicts, at most"] * speed.oracle


def peak_memory(device: str) -> str:
    """The most memory this process has held so far."""
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


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    work()
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began
