"""The attribute checker, which reads every factor off an image, and measured shares: for audits, no part of any result."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from counterfoil.core.records import Trial
from counterfoil.parts import images
from counterfoil.store import Run
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import FACTORS

Z = 1.959964  # 95 % of a normal distribution lies within this many deviations


@dataclass(frozen=True)
class Reading:
    """One measured number: a share or a mean, with a 95 % interval and what it was to reach."""

    name: str
    value: float
    low: float
    high: float
    n: int
    unit: str = "%"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Tell whether the target is met; None without a target."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (self.at_most is None or self.value <= self.at_most)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def share(name: str, right: Tensor, *, at_least: float | None = None, at_most: float | None = None) -> Reading:
    """The share of True in per cent, with Wilson's interval.  # (N,) bool"""
    n, p = len(right), float(right.double().mean())
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Reading(name, 100 * p, 100 * low, 100 * high, n, at_least=at_least, at_most=at_most)


def mean(name: str, values: Tensor, unit: str, *, at_least: float | None = None, at_most: float | None = None) -> Reading:
    """The mean with a normal interval; a single value is its own interval.  # (N,)"""
    n, value = len(values), float(values.double().mean())
    half = Z * float(values.double().std()) / math.sqrt(n) if n > 1 else 0.0
    return Reading(name, value, value - half, value + half, n, unit, at_least=at_least, at_most=at_most)


def points_lost(name: str, before: Tensor, after: Tensor, *, at_most: float | None = None) -> Reading:
    """Measure how many points fewer are right after than before, of the same rows.  # (N,) bool twice

    The interval is Wald's after half a row was added to each of the four cells (Agresti and Min, 2005), so that it has a width
    even if no row changed.
    """
    n, fell, rose = len(before), int((before & ~after).sum()), int((~before & after).sum())
    rows, change, moved = n + 2, fell - rose, fell + rose + 1
    half = Z * math.sqrt(moved - change * change / rows) / rows
    low, high = change / rows - half, change / rows + half
    return Reading(name, 100 * change / n, 100 * low, 100 * high, n, "points", at_most=at_most)


BATCH = 256
MEAN = DEVIATION = 0.5


def load_timm(folder: Path) -> nn.Module:
    """Load a timm model that the lab's recipes saved, ready for prediction."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model: nn.Module = timm.create_model(
        config["architecture"], num_classes=config["num_classes"], pretrained_cfg=config["pretrained_cfg"], **config["model_args"]
    )
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.float().eval().requires_grad_(False)


def normalise(images: Tensor) -> Tensor:
    """Bring images in [0, 1] to [-1, 1], as every model of the lab takes them."""
    return (images - MEAN) / DEVIATION


def split(scores: Tensor) -> dict[str, Tensor]:
    """Return the scores of each factor's values.  # (N, 64) → {factor: (N, values)}"""
    parts = scores.split([len(values) for values in FACTORS.values()], dim=1)
    return dict(zip(FACTORS, parts, strict=True))


class Checker:
    """Reads every factor off an image."""

    def __init__(self, device: str | torch.device = "cpu", *, folder: Path = WEIGHTS / "attributes") -> None:
        self._network = load_timm(folder).to(device)
        self._device = device

    @torch.no_grad()
    def read(self, pictures: Tensor) -> dict[str, Tensor]:
        """The value it sees of each factor, as a place in the vocabulary.  # (N, 3, 64, 64) → {factor: (N,)}"""
        found: dict[str, list[Tensor]] = {}
        for some in pictures.split(BATCH):
            for name, scores in split(self._network(normalise(some.to(self._device)))).items():
                found.setdefault(name, []).append(scores.argmax(1).cpu())
        return {name: torch.cat(rows) for name, rows in found.items()}


@dataclass(frozen=True)
class Faithful:
    """For one kind of nuisance: how often the garment, the nuisance and both are as asked for."""

    kind: str
    garment: Reading
    nuisance: Reading
    both: Reading


def faithfulness(run: Run, trials: Iterable[Trial]) -> list[Faithful]:
    """The checker's word on these painted images of a run over the lab's grid."""
    checker = Checker()
    rows = iter([trial for trial in trials if trial.image and trial.factor in FACTORS])
    right: dict[str, list[tuple[bool, bool]]] = {}
    while some := list(islice(rows, 32)):
        read = checker.read(torch.stack([images.read(run.picture(trial)) for trial in some]))
        for row, trial in enumerate(some):
            seen = {name: FACTORS[name][int(read[name][row])] for name in ("garment", trial.factor)}
            found = (seen["garment"] == run.classes[trial.label], seen[trial.factor] == trial.value)
            right.setdefault(trial.factor, []).append(found)
    return [_reading(kind, torch.tensor(found)) for kind, found in sorted(right.items())]


def _reading(kind: str, right: Tensor) -> Faithful:
    whole = right.all(dim=1)
    return Faithful(kind, share("object", right[:, 0]), share(kind, right[:, 1]), share("both", whole))
