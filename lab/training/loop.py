"""A training run: recipe, folders and device, the loop with AdamW and an averaged copy, and the record next to the weights."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TextIO, TypeVar

import torch
from lab.training.fashion_mnist import from_idx
from torch import Tensor, nn

from counterfoil.core.errors import RunFailed
from counterfoil.parts.weights import file_sha256
from counterfoil_lab.world import Garments


@dataclass(frozen=True)
class Schedule:
    """The optimiser's settings."""

    steps: int
    batch: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    warmup: int = 200
    averaging: float = 0.999
    """Decay of the running average of the weights; the average is what gets saved."""
    largest_gradient: float = 1.0


class Recipe(Protocol):
    """Everything that makes a model, but for the seed and the models it builds on."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def schedule(self) -> Schedule:
        """Describe how the model is optimised."""


Kind = TypeVar("Kind", bound=Recipe)


def reschedule(recipe: Kind, **changes: float | None) -> Kind:
    """The recipe with other values in its schedule; None leaves a value as it is."""
    given = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, **given))  # type: ignore[arg-type, type-var]


Earlier = dict[str, Path | None]
"""Models that a recipe builds on: the folder of each, or None for one that is done without."""


@dataclass(frozen=True)
class Run:
    """One training run, from a seed to a folder with the trained model."""

    name: str
    """The recipe's name."""
    out: Path
    """The folder the model is written to, one folder a model."""
    weights: tuple[Path, ...] = ()
    """Folders with models trained before this one, for recipes that build on them; the first that has a model gives it."""
    data: Path | None = None
    """The folder with the Fashion-MNIST idx files; None for where the lab looks by itself."""
    device: str = "cpu"
    minutes: float | None = None
    """Minutes to train; the schedule is then stretched over that time instead of over its steps."""
    seed: int = 0
    compiles: bool = False
    """Compile the costly modules: worth its minute on a GPU only."""
    resumes: bool = False
    """Continue from the weights already in `out`."""
    note: str = ""
    """A note on this run for the model's card."""

    def garments(self) -> Garments:
        """The shapes to train on: those of Fashion-MNIST's training split, never those of the test split."""
        return from_idx(self.data, "train").to(self.device)

    def find(self, name: str) -> Path | None:
        """The folder of a model trained before."""
        folders = (folder / name for folder in self.weights)
        return next((found for found in folders if any((found / file).is_file() for file in _CONFIGURATIONS)), None)

    def earlier(self, *names: str) -> Earlier:
        """The folders of models to build on; one that is nowhere is done without, and a warning says so."""
        found = {name: self.find(name) for name in names}
        for name in (name for name, folder in found.items() if folder is None):
            print(f"counterfoil: warning: no trained {name} to build on; {self.name} is trained without it", file=sys.stderr)
        return found

    def compile(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A module or function as the training step should call it."""
        if not self.compiles:
            return work
        # Small networks wait for their kernels to be launched: what is compiled is also recorded and replayed.
        return torch.compile(work, dynamic=False, mode="reduce-overhead" if self.on_gpu else None)

    @property
    def on_gpu(self) -> bool:
        """Tell whether this is CUDA."""
        return torch.device(self.device).type == "cuda"

    def autocast(self) -> torch.autocast:
        """Half precision where it pays: bfloat16 on a GPU, nothing on a CPU."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False)


_CONFIGURATIONS = ("config.json", "model_index.json")
"""A folder with one of these is a model; a painter's without its index is only the autoencoder of one to come."""


def prepare_torch(seed: int) -> None:
    """Set the seeds and the fast arithmetic that training tolerates."""
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


FILE = "training.json"
LIBRARIES = ("torch", "diffusers", "timm", "transformers")


def read(folder: Path) -> dict[str, Any]:
    """Return what is known of the model in a folder, {} if nothing is."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}  # type: ignore[no-any-return]


class Record:
    """The record of one run; a run that continues from earlier weights adds a stage to those before it."""

    def __init__(self, run: Run, recipe: Recipe, module: nn.Module, *, rate: float, built_on: Earlier) -> None:
        self._folder = run.out
        before = read(run.out) if run.resumes else {}
        notes = [note for note in (before.get("note"), run.note) if note]
        self._stages: list[dict[str, Any]] = before.get("stages", [])
        self._model = {
            "recipe": run.name,
            "seed": before.get("seed", run.seed),
            "machine": torch.cuda.get_device_name(run.device) if run.on_gpu else "CPU",
            "trained_parameters": sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            **({"note": "; ".join(notes)} if notes else {}),
        }
        self._stage = {
            "seed": run.seed,
            "batch": recipe.schedule.batch,
            "rate": rate,
            **({} if run.minutes is None else {"minutes": run.minutes}),
            "compiled": run.compiles,
            "machine": self._model["machine"],
            "versions": _versions(module),
            "built_on": _hashes(built_on),
            **_plain(recipe),
        }

    def write(self, *, steps: int, seconds: float, first_step: float) -> None:
        """Put down how far training has come."""
        taken = {"steps": steps, "seconds": round(seconds), "first_step_seconds": round(first_step)}
        total = {"steps": sum(stage["steps"] for stage in self._stages) + steps}
        record = self._model | total | {"stages": [*self._stages, taken | self._stage]}
        (self._folder / FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data: its schedule, and everything else."""
    settings = asdict(recipe)
    return {"schedule": settings.pop("schedule"), "recipe": settings}


def _versions(module: nn.Module) -> dict[str, str]:
    """The versions of torch and of the libraries that the network's layers come from."""
    used = {"torch"} | {type(part).__module__.partition(".")[0] for part in module.modules()}
    return {name: sys.modules[name].__version__ for name in LIBRARIES if name in used}


def _hashes(built_on: Earlier) -> dict[str, str | None]:
    """The SHA-256 of every weight file that a run builds on; None for a model that it is done without."""
    found: dict[str, str | None] = {}
    for name, folder in built_on.items():
        if folder is None:
            found[name] = None
        else:
            files = sorted(folder.rglob("*.safetensors"))
            found |= {f"{name}/{file.relative_to(folder).as_posix()}": file_sha256(file) for file in files}
    return found


LOG_EVERY = 50
PRINT_EVERY = 20 * LOG_EVERY
SAVE_EVERY_SECONDS = 100.0
RESUMED_PACE = 0.5
"""Learning rate of a model that continues from earlier weights, as a share of the recipe's."""

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
    """Share of the training that is done, by steps or by time."""

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
