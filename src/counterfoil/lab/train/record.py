"""How a model came to be: `training.json` beside its weights, one entry a stage, written whenever the weights are."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterfoil.lab.train.recipe import Recipe
from counterfoil.lab.train.run import Earlier, Run
from counterfoil.parts.weights import file_sha256

FILE = "training.json"
LIBRARIES = ("torch", "diffusers", "timm", "transformers")


def read(folder: Path) -> dict[str, Any]:
    """What is known of the model in a folder, {} if nothing is."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}  # type: ignore[no-any-return]


class Record:
    """The record of one run; a run that goes on from earlier weights adds a stage to those before it."""

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
