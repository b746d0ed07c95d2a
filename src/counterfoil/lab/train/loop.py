"""The training loop all recipes share: AdamW, warm-up and cosine, an averaged copy of the weights, a log."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Mapping
from typing import TextIO

import torch
from torch import Tensor, nn

from counterfoil.core.errors import RunFailed
from counterfoil.lab.train.recipe import Recipe, Schedule
from counterfoil.lab.train.record import Record
from counterfoil.lab.train.run import Earlier, Run

LOG_EVERY = 50
PRINT_EVERY = 20 * LOG_EVERY
SAVE_EVERY_SECONDS = 100.0
RESUMED_PACE = 0.5
"""What a model that goes on from earlier weights learns at, as a share of the recipe's rate."""

Loss = Callable[[float], dict[str, Tensor]]
"""Given the progress in [0, 1], the named losses of one batch; 'loss' is the one that is minimised."""


def fit(
    module: nn.Module, loss: Loss, *, run: Run, recipe: Recipe, save: Callable[[nn.Module], None], built_on: Earlier | None = None
) -> None:
    """Train the module; an average of its weights is saved at the end and now and then before, with the record of the run."""
    schedule = recipe.schedule
    rate = schedule.learning_rate * (RESUMED_PACE if run.resumes else 1.0)
    run.out.mkdir(parents=True, exist_ok=True)
    record = Record(run, recipe, module, rate=rate, built_on=built_on or {})
    average = Average(module)
    optimiser = _optimiser(module, schedule, fused=run.on_gpu)
    clock = Clock(schedule.steps, run.minutes)
    step, progress, next_save = 0, 0.0, SAVE_EVERY_SECONDS
    with (run.out / "log.jsonl").open("a" if run.resumes else "w", encoding="utf-8") as log:
        while progress < 1:
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
            if step == 1:
                clock.restart()
            progress = clock.progress(step)
            due = progress >= 1 or clock.seconds() > next_save
            if due or step == 1 or step % LOG_EVERY == 0:
                _log(log, run, step=step, seconds=clock.seconds(), values=losses | {"norm": norm})
            if due:
                save(average.module)
                record.write(steps=step, seconds=clock.seconds(), first_step=clock.first_step)
                next_save = clock.seconds() + SAVE_EVERY_SECONDS


class Clock:
    """How far training has come, by steps or by time."""

    def __init__(self, steps: int, minutes: float | None) -> None:
        self._steps = steps
        self._started = time.monotonic()
        self._ends = None if minutes is None else self._started + 60 * minutes
        self.first_step = 0.0

    def restart(self) -> None:
        """Count from now to the same end: the first step's compilation is not training."""
        self.first_step = self.seconds()
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


def _log(log: TextIO, run: Run, *, step: int, seconds: float, values: Mapping[str, Tensor]) -> None:
    """Write a line, show some of them, and stop before weights that came of a broken loss are saved."""
    numbers = {name: round(float(value.detach()), 5) for name, value in values.items()}
    line = json.dumps({"step": step, "seconds": round(seconds, 1)} | numbers)
    log.write(line + "\n")
    log.flush()
    if step == 1 or step % PRINT_EVERY == 0:
        print(run.name, line, flush=True)
    if not math.isfinite(numbers["loss"]):
        raise RunFailed(
            f"{run.name}: the loss is {numbers['loss']} at step {step} (seed {run.seed}); "
            "try another --seed or lower the recipe's learning rate"
        )
