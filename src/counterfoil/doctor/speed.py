"""How long each part takes, and from that how long the whole run will."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from counterfoil.assembly import Assembly
from counterfoil.cost import cost
from counterfoil.doctor.sample import Handful
from counterfoil.engine import CPU_TILE, EightBits
from counterfoil.memory import GPU_TILE
from counterfoil.transfers import settle


@dataclass(frozen=True)
class Speed:
    """Seconds for one picture."""

    model: float
    climbing: float  # render, ask, and the gradient back through both; 0 for a black box
    rendering: float
    oracle: float


def measure(assembly: Assembly, few: Handful, *, climbs: bool) -> Speed:
    """The parts' speed on one tile, after a first call that warms them up; that of a guided step if it `climbs`."""
    device = few.images.device
    rows = min(len(few), CPU_TILE if device.type == "cpu" else assembly.spec.engine.tile or GPU_TILE)
    some = few.rows(slice(0, rows))
    model, generator, oracle = assembly.model, assembly.generator, assembly.oracle
    with torch.no_grad():
        state = generator.start(some.images, some.labels, some.seeds)

    def climb() -> None:
        leaf = state[generator.moving].detach().requires_grad_()
        with torch.enable_grad():
            pictures = EightBits.apply(generator.render({**state, generator.moving: leaf}).float())
            loss = F.cross_entropy(model.logits(pictures).float(), some.truth)
            torch.autograd.grad(loss, leaf, allow_unused=True)

    with torch.no_grad():
        asked = _seconds(lambda: model.logits(some.images), device) / rows
        judged = _seconds(lambda: oracle.judge(some.images, some.labels), device) / rows
        rendered = _seconds(lambda: generator.render(state), device) / rows
    return Speed(asked, _seconds(climb, device) / rows if climbs else 0.0, rendered, judged)


def predicted(assembly: Assembly, speed: Speed) -> float:
    """Seconds the whole run takes at most; climbs that the oracle ends early take less."""
    calls = cost(assembly.spec, len(assembly.dataset))
    gradients = calls.gradients if speed.climbing else 0
    asked = max(calls.model_calls - gradients, 0) * speed.model
    rendered = max(calls.renderings - gradients, 0) * speed.rendering
    return asked + rendered + gradients * speed.climbing + calls.verdicts * speed.oracle


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
    settle(device)
    began = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - began
