"""The training loop all recipes share: AdamW, warm-up and cosine, an averaged copy of the weights, a log."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.lab.train.run import Run

LOG_EVERY = 50
SAVE_EVERY_SECONDS = 100.0
RESUMED_PACE = 0.5
"""What a model that goes on from earlier weights learns at, as a share of the recipe's rate."""


@dataclass(frozen=True)
class Schedule:
    """How a model is optimised."""

    steps: int
    batch: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    warmup: int = 200
    averaging: float = 0.999
    """Decay of the running average of the weights; the average is what gets saved."""
    largest_gradient: float = 1.0


Loss = Callable[[float], dict[str, Tensor]]
"""Given the progress in [0, 1], the named losses of one batch; 'loss' is the one that is minimised."""


def fit(module: nn.Module, loss: Loss, *, run: Run, schedule: Schedule, save: Callable[[nn.Module], None]) -> nn.Module:
    """Train the module, save its averaged copy now and at times before, and return that copy."""
    average = Average(module)
    optimiser = _optimiser(module, schedule, fused=run.on_gpu)
    steps = run.steps or schedule.steps
    rate = schedule.learning_rate * (RESUMED_PACE if run.resumes else 1.0)
    clock = Clock(steps, run.minutes)
    step, next_save = 0, SAVE_EVERY_SECONDS
    run.out.mkdir(parents=True, exist_ok=True)
    with (run.out / "log.jsonl").open("a", encoding="utf-8") as log:
        while (progress := clock.progress(step)) < 1:
            for group in optimiser.param_groups:
                group["lr"] = rate * _pace(step, progress, schedule.warmup)
            # Before the loss: where steps are replayed, the gradients lie in memory that the next step writes to.
            optimiser.zero_grad(set_to_none=True)
            torch.compiler.cudagraph_mark_step_begin()
            losses = loss(progress)
            losses["loss"].backward()
            norm = nn.utils.clip_grad_norm_(module.parameters(), schedule.largest_gradient)
            optimiser.step()
            average.follow(min(schedule.averaging, (1 + step) / (10 + step)))
            step += 1
            if step % LOG_EVERY == 0 or step == 1:
                numbers = {name: round(float(value.detach()), 5) for name, value in (losses | {"norm": norm}).items()}
                _write(log, run, {"step": step, "seconds": round(clock.seconds(), 1)} | numbers)
                if not math.isfinite(numbers["loss"]):
                    raise FloatingPointError(f"{run.out.name}: the loss is {numbers['loss']} at step {step}; lower the rate")
            if step == 1:
                clock.restart()
            if clock.seconds() > next_save:
                save(average.module)
                next_save = clock.seconds() + SAVE_EVERY_SECONDS
    save(average.module)
    _record(run, schedule, module, steps=step, seconds=clock.seconds())
    return average.module


class Clock:
    """How far training has come, by steps or by time."""

    def __init__(self, steps: int, minutes: float | None) -> None:
        self._steps = steps
        self._started = time.monotonic()
        self._ends = None if minutes is None else self._started + 60 * minutes

    def restart(self) -> None:
        """Count from now to the same end: the first step's compilation is not training."""
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Seconds spent training."""
        return time.monotonic() - self._started

    def progress(self, step: int) -> float:
        """The share done, 1 or more at the end."""
        if self._ends is None:
            return step / self._steps
        return 1.0 if time.monotonic() >= self._ends else self.seconds() / (self._ends - self._started)


class Average:
    """A copy of a module whose weights are the running average of the module's."""

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False)
        self._kept: list[Tensor] = list(self.module.parameters())
        self._now = [weight.detach() for weight in module.parameters()]
        # Counters and running statistics are taken over as they are.
        self._kept_buffers, self._buffers = list(self.module.buffers()), list(module.buffers())

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Move a step towards the module."""
        torch._foreach_lerp_(self._kept, self._now, 1 - decay)
        if self._buffers:
            torch._foreach_copy_(self._kept_buffers, self._buffers)


def _pace(step: int, progress: float, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def _optimiser(module: nn.Module, schedule: Schedule, *, fused: bool) -> torch.optim.Optimizer:
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    groups = [
        # Biases, gains and single vectors are no worse for being large.
        {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": schedule.weight_decay},
        {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.99), fused=fused)


def _write(log: Any, run: Run, line: dict[str, Any]) -> None:
    log.write(json.dumps(line) + "\n")
    log.flush()
    if line["step"] % (20 * LOG_EVERY) == 0 or line["step"] == 1:
        print(run.out.name, json.dumps(line), flush=True)


def _record(run: Run, schedule: Schedule, module: nn.Module, *, steps: int, seconds: float) -> None:
    """Say how the model was trained; a run that went on from earlier weights is added to those before it."""
    path = run.out / "training.json"
    before = json.loads(path.read_text(encoding="utf-8"))["stages"] if run.resumes and path.is_file() else []
    stage = {"steps": steps, "batch": run.batch or schedule.batch, "seconds": round(seconds), "schedule": asdict(schedule)}
    record = {
        "recipe": run.out.name,
        "seed": run.seed,
        "machine": torch.cuda.get_device_name() if run.on_gpu else "CPU",
        "trained_parameters": sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
        "steps": sum(done["steps"] for done in before) + steps,
        "stages": [*before, stage],
    }
    run.write_json("training.json", record)
